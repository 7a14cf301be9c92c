// collective_perf: how fast the collectives are, like nccl-tests.
//
//   build/collective_perf --ranks 4 --op all_reduce
//   mpirun -n 2 --bind-to none build/collective_perf --fresh --versus mpi
//
// Times are medians over rounds; with --versus the two backends take turns within each round, and the ratio is the
// median of the rounds' ratios, since machines are shared and their speed drifts.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>
#include <vector>

#include "examples/collective_perf/options.h"
#include "runtime/comm/host/progress.h"
#include "runtime/comm/world.h"
#include "runtime/core/log.h"

namespace {

using namespace sixfold;
using collective_perf::PerfOptions;

/// The operation under test: its buffers, and what a trainer does around it.
class Operation {
 public:
  Operation(const PerfOptions& options, comm::World& world, size_t bytes)
      : primitive_(comm::parse_primitive(options.op)),
        dtype_(parse_dtype(options.dtype)),
        op_(parse_reduce_op(options.redop)),
        size_(world.size()),
        fresh_(options.fresh),
        category_(options.plain_buffers ? Category::Other : Category::Communication) {
    options_.algorithm = comm::parse_algorithm(options.algorithm);
    options_.tag = "perf";
    const size_t elements = bytes / dtype_bytes(dtype_), n = static_cast<size_t>(size_);
    const bool blocks = comm::operation_bytes(primitive_, 1, size_, 1) > 1;
    count_ = blocks ? elements / n : elements;
    in_ = tensor(world, comm::input_count(primitive_, count_, size_));
    out_ =
        primitive_ == comm::Primitive::AllReduce ? in_ : tensor(world, comm::output_count(primitive_, count_, size_));
  }

  uint64_t bytes() const { return comm::operation_bytes(primitive_, count_, size_, dtype_bytes(dtype_)); }
  size_t count() const { return count_; }
  double busbw_factor() const { return comm::busbw_factor(primitive_, size_); }

  /// Writes the whole input, as a backward pass does.
  void write() const {
    if (!fresh_) return;
    auto* words = static_cast<uint64_t*>(in_.raw());
    // Zeros, but the compiler does not know it: a memset writes in a way of its own, past the caches when it is long.
    const uint64_t factor = zero_;
    for (size_t i = 0; i < in_.bytes() / 8; ++i) words[i] = factor * i;
  }
  /// Reads the whole output, as an optimizer does.
  void read() {
    if (!fresh_) return;
    const auto* words = static_cast<const uint64_t*>(out_.raw());
    uint64_t sum = 0;
    for (size_t i = 0; i < out_.bytes() / 8; ++i) sum += words[i];
    sink_ = sum;
  }
  void run(comm::Communicator& group) const {
    switch (primitive_) {
      case comm::Primitive::Broadcast:
        return group.broadcast(in_, 0, options_).wait();
      case comm::Primitive::Reduce:
        return group.reduce(in_, out_, op_, 0, options_).wait();
      case comm::Primitive::AllReduce:
        return group.all_reduce(in_, out_, op_, options_).wait();
      case comm::Primitive::AllGather:
        return group.all_gather(in_, out_, options_).wait();
      case comm::Primitive::ReduceScatter:
        return group.reduce_scatter(in_, out_, op_, options_).wait();
      default:
        return group.all_to_all(in_, out_, options_).wait();
    }
  }

 private:
  Tensor tensor(comm::World& world, size_t elements) const {
    return Tensor::zeros({static_cast<int64_t>(elements)}, dtype_, world.memory(), category_);
  }

  comm::Primitive primitive_;
  DType dtype_;
  ReduceOp op_;
  int size_;
  bool fresh_;
  Category category_;  // Communication: peers reach the buffers
  comm::Options options_;
  size_t count_ = 0;
  Tensor in_, out_;
  volatile uint64_t zero_ = 0;
  volatile uint64_t sink_ = 0;  // keeps the read from being optimised away
};

/// Seconds of one cycle on the slowest rank, over `iters` cycles; without a group the cycle has no operation in it.
double time_cycles(Operation& operation, comm::Communicator* group, comm::Communicator& clock, int iters) {
  clock.barrier();
  const double start = comm::seconds_now();
  for (int i = 0; i < iters; ++i) {
    operation.write();
    if (group != nullptr) operation.run(*group);
    operation.read();
  }
  auto nanoseconds = static_cast<int64_t>((comm::seconds_now() - start) * 1e9);
  const comm::Buf slowest(&nanoseconds, 1, DType::I64);
  clock.all_reduce(slowest, slowest, ReduceOp::Max).wait();
  return static_cast<double>(nanoseconds) * 1e-9 / iters;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Measured {
  double seconds = 0, versus_seconds = 0, ratio = 0;
};

Measured measure(const PerfOptions& options, Operation& operation, comm::Communicator& group,
                 comm::Communicator* versus, comm::Communicator& clock) {
  for (int i = 0; i < options.warmup; ++i) {
    time_cycles(operation, &group, clock, 1);
    if (versus != nullptr) time_cycles(operation, versus, clock, 1);
  }
  // Enough cycles a round for the clock and the barrier before it not to matter.
  const double once = time_cycles(operation, &group, clock, 1);
  const int iters = options.iters > 0 ? options.iters : static_cast<int>(std::clamp(0.004 / once, 1.0, 2000.0));
  std::vector<double> own, other, ratios;
  for (int round = 0; round < options.rounds; ++round) {
    const double idle = options.fresh ? time_cycles(operation, nullptr, clock, iters) : 0;
    own.push_back(time_cycles(operation, &group, clock, iters) - idle);
    if (versus == nullptr) continue;
    other.push_back(time_cycles(operation, versus, clock, iters) - idle);
    ratios.push_back(other.back() / own.back());
  }
  Measured measured;
  measured.seconds = median(own);
  if (versus != nullptr) {
    measured.versus_seconds = median(other);
    measured.ratio = median(ratios);
  }
  return measured;
}

void print_header(const PerfOptions& o, int size) {
  std::printf("# %s %s %s, %d ranks, %s%s, medians of %d rounds; time in us, bandwidths in GB/s\n", o.op.c_str(),
              o.dtype.c_str(), o.redop.c_str(), size, o.algorithm.c_str(), o.fresh ? ", fresh data" : "", o.rounds);
  std::printf("%12s %12s %12s %8s %8s", "bytes", "count", "time", "algbw", "busbw");
  if (!o.versus.empty()) std::printf(" %12s %10s", ("time " + o.versus).c_str(), (o.versus + "/own").c_str());
  std::printf("\n");
}

void run_rank(const PerfOptions& options, comm::World& world) {
  comm::Communicator clock = world.open_group(comm::BackendKind::Own, false);
  std::optional<comm::Communicator> versus;
  if (!options.versus.empty()) versus.emplace(world.open_group(comm::BackendKind::Mpi, true));
  if (world.rank() == 0) print_header(options, world.size());
  for (size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= static_cast<size_t>(options.factor)) {
    Operation operation(options, world, bytes);
    const Measured m = measure(options, operation, world.group(), versus ? &*versus : nullptr, clock);
    if (world.rank() != 0) continue;
    const double algbw = static_cast<double>(operation.bytes()) / m.seconds * 1e-9;
    std::printf("%12zu %12zu %12.2f %8.2f %8.2f", static_cast<size_t>(operation.bytes()), operation.count(),
                m.seconds * 1e6, algbw, algbw * operation.busbw_factor());
    if (versus) std::printf(" %12.2f %10.2f", m.versus_seconds * 1e6, m.ratio);
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool speaks = comm::planned_world_rank({}) == 0;  // one rank explains what is wrong
  try {
    const collective_perf::Parsed parsed = collective_perf::parse_options(argc, argv, speaks);
    if (parsed.options) {
      comm::run_world(parsed.options->world, [&](comm::World& world) { run_rank(*parsed.options, world); });
    }
    return parsed.exit_code;
  } catch (const ConfigError& error) {
    if (speaks) log_error(error.what());
    return 2;
  } catch (const std::exception& error) {
    log_error(error.what());
    return 1;
  }
}
