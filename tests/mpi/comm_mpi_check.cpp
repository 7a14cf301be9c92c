// Started by mpirun: the collective cases between processes, on our own backend or on MPI's (argument "own" or "mpi").
// "mismatch" and "throw" are ranks that disagree and a rank that fails, "paced" a message on an emulated link,
// "staged" buffers on a device, for which there are threads of the host, "compute" an all-reduce that nobody but
// progress threads drives; "failed" and "disagreed" what such threads hear. Prints "CHECKED n cases" on rank 0 and
// exits 0 when every rank saw every case right.
//
//   comm_mpi_check [WHAT] [--topology NODESxRANKS] [--force-mpi-links] [--slot-bytes N] [--num-slots N] [--max-count N]
//                  [--progress-thread auto|on|off]
#include <cmath>
#include <cstdio>

#include "runtime/comm/host/progress.h"
#include "runtime/comm/observe/records.h"
#include "runtime/core/log.h"
#include "tests/collective_product.h"
#include "tests/host_gpus.h"

namespace sixfold::test {
namespace {

using comm::Algorithm;
using comm::Primitive;

struct Tally {
  int num_cases = 0, num_wrong = 0;
  void add(const std::string& problem) {
    ++num_cases;
    if (problem.empty()) return;
    ++num_wrong;
    log_error(problem);
  }
};

struct Arguments {
  std::string what = "own";
  comm::WorldOptions world;
  size_t max_count = 100003;  // fewer where slots are small
};

void check_collectives(comm::World& world, const Arguments& arguments, Tally& tally) {
  comm::Communicator& group = world.group();
  const size_t n = static_cast<size_t>(group.size());
  const std::vector<Algorithm> automatic = {Algorithm::Auto};
  for (Primitive primitive : comm::kCollectives) {
    for (Algorithm algorithm :
         arguments.what == "own" ? comm::algorithms_of(primitive, &world.topology()) : automatic) {
      for (size_t count : {size_t{0}, size_t{1}, n + 1, size_t{1009}, size_t{100003}}) {
        if (count > arguments.max_count) continue;
        for (DType dtype : {DType::F32, DType::BF16, DType::I64}) {
          const int root = static_cast<int>(count) % group.size();
          const ReduceOp op = dtype == DType::BF16  ? ReduceOp::Avg
                              : dtype == DType::F32 ? ReduceOp::Sum
                                                    : ReduceOp::Max;
          tally.add(run_case(group, world.memory(), {primitive, algorithm, count, dtype, op, root, false, 1}));
          tally.add(run_case(group, world.memory(), {primitive, algorithm, count, dtype, op, root, true, 0}));
        }
      }
    }
  }
}

/// Every two of what a collective may be asked for meet, as far as it applies to this World.
void check_product(comm::World& world, bool own, Tally& tally) {
  if (!own) return;
  for (const auto& [unused, cases] : CollectiveProduct({world.size()}).covering()) {
    for (const CollectiveCase& c : cases) {
      if (!comm::builder_applies(c.primitive, c.algorithm, &world.topology())) continue;
      tally.add(run_case(world.group(), world.memory(), c));
    }
  }
}

/// `category` says whether the buffers are such as peers reach.
void check_point_to_point(comm::World& world, Category category, size_t max_count, Tally& tally) {
  comm::Communicator& group = world.group();
  const int next = (group.rank() + 1) % group.size(), previous = (group.rank() + group.size() - 1) % group.size();
  for (size_t count : {size_t{0}, size_t{5}, 2 * max_count}) {
    const Shape shape = {static_cast<int64_t>(count)};
    const Tensor out = Tensor::empty(shape, DType::F32, world.memory(), category);
    const Tensor in = Tensor::zeros(shape, DType::F32, world.memory(), category);
    std::fill_n(out.data<float>(), count, static_cast<float>(group.rank() + 1));
    const comm::P2p transfers[2] = {{comm::P2p::Kind::Send, out, next, {}}, {comm::P2p::Kind::Recv, in, previous, {}}};
    group.batch(transfers).wait();
    const bool right = std::all_of(in.data<float>(), in.data<float>() + count,
                                   [&](float value) { return value == static_cast<float>(previous + 1); });
    tally.add(right ? "" : "exchange of " + std::to_string(count));
  }
}

/// Groups of every other rank (of 2x2 ranks, across the nodes) and of neighbours (of 2x2, within a node), each beside
/// the World's own.
void check_split(comm::World& world, Tally& tally) {
  const auto sum_over = [](comm::Communicator& group, int value) {
    float sum = static_cast<float>(value);
    group.all_reduce({&sum, 1, DType::F32}, {&sum, 1, DType::F32}, ReduceOp::Sum).wait();
    return sum;
  };
  float everyone = 0;
  for (int r = 0; r < world.size(); ++r) everyone += static_cast<float>(r);
  for (int round = 0; round < 10; ++round) {
    for (bool neighbours : {false, true}) {
      const auto color_of = [&](int r) { return neighbours ? r / 2 : r % 2; };
      comm::Communicator part = world.group().split(color_of(world.rank()), -world.rank());
      float wanted = 0;
      for (int r = 0; r < world.size(); ++r)
        wanted += color_of(r) == color_of(world.rank()) ? static_cast<float>(r) : 0;
      tally.add(sum_over(part, world.rank()) == wanted ? "" : "sum over a split group");
      tally.add(sum_over(world.group(), world.rank()) == everyone ? "" : "sum over all beside a split group");
    }
  }
}

/// 256 KiB at 0.01 GB/s are 26 ms; nothing but the pace makes a loaded machine slower.
void check_pace(comm::World& world, Tally& tally) {
  std::vector<std::byte> x(256 * 1024);
  const comm::Buf buf(x.data(), x.size(), DType::U8);
  const double start = comm::seconds_now();
  world.group().barrier();
  if (world.rank() == 0) world.group().send(buf, world.size() - 1).wait();
  if (world.rank() == world.size() - 1) world.group().recv(buf, 0).wait();
  world.group().barrier();
  tally.add(comm::seconds_now() - start >= 0.025 ? "" : "an emulated link was too fast");
}

/// Whether or not nodes share memory.
void check_staged(comm::World& world, Tally& tally) {
  for (Primitive primitive : comm::kCollectives) {
    for (size_t count : {size_t{0}, size_t{1}, size_t{1009}}) {
      for (bool in_place : {false, true}) {
        CollectiveCase c{primitive, Algorithm::Auto, count, DType::F32, ReduceOp::Sum, world.size() - 1, in_place};
        tally.add(run_case_on_device(world.group(), world.memory(), c));
      }
    }
  }
  std::vector<float> out(1000, static_cast<float>(world.rank())), in(1000);
  const int next = (world.rank() + 1) % world.size(), previous = (world.rank() + world.size() - 1) % world.size();
  const comm::P2p transfers[2] = {{comm::P2p::Kind::Send, {on_device(out.data()), 1000, DType::F32}, next, {}},
                                  {comm::P2p::Kind::Recv, {on_device(in.data()), 1000, DType::F32}, previous, {}}};
  world.group().batch(transfers).wait();
  tally.add(in == std::vector<float>(1000, static_cast<float>(previous)) ? "" : "exchange");
  tally.add(world.gpu_use()->mode == comm::GpuMode::Staged ? "" : "another mode");
}

/// Hosts of one machine have one clock: comparing them may be wrong by no more than it says.
void check_clocks(comm::World& world, Tally& tally) {
  const comm::ClockOffset offset = comm::measure_clock_offset(world);
  tally.add(std::abs(offset.seconds) <= offset.error_s ? "" : "clocks of one machine differ");
}

/// Some 10 ms of arithmetic.
void compute() {
  volatile float sum = 0;
  for (int i = 0; i < 5000000; ++i) sum = sum + 1.0f;
}

/// Looks at the table, and drives nothing, until the operation has ended.
void check_progress(comm::World& world, Tally& tally) {
  world.group().barrier();
  world.comm_table().reset();
  std::vector<float> x(1 << 20, static_cast<float>(world.rank()));
  const comm::Buf buf(x.data(), x.size(), DType::F32);
  comm::Work work = world.group().all_reduce(buf, buf, ReduceOp::Max);
  do {
    compute();
  } while (world.comm_table().rows().at(0).seconds == 0);
  tally.add(work.test() ? "" : "an operation that has ended is not done");
  tally.add(x.back() == static_cast<float>(world.size() - 1) ? "" : "maximum over the ranks");
}

/// Ranks that never wait hear of a failure from their progress threads.
void compute_until_failure(comm::World& world, bool disagrees) {
  std::vector<float> x(disagrees && world.rank() == 2 ? 409598 : 409600);
  world.group().barrier();
  if (!disagrees && world.rank() == 1) throw std::runtime_error("disk full");
  const comm::Buf buf(x.data(), x.size(), DType::F32);
  comm::Work work = world.group().all_reduce(buf, buf, ReduceOp::Sum);
  for (;;) {
    compute();
    world.progress();
  }
}

void disagree(comm::World& world) {
  std::vector<float> x(world.rank() == 2 ? 409598 : 409600);
  const comm::Buf buf(x.data(), x.size(), DType::F32);
  world.group().all_reduce(buf, buf, ReduceOp::Sum).wait();
  world.group().barrier();
}

void fail_on_one_rank(comm::World& world) {
  world.group().barrier();
  if (world.rank() == 1) throw std::runtime_error("disk full");
  world.group().barrier();
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  arguments.world.timeout_s = 30;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] {
      if (++i == argc) throw ConfigError(word + ": needs a value");
      return std::string(argv[i]);
    };
    if (word == "--topology") {
      arguments.world.topology = value();
    } else if (word == "--force-mpi-links") {
      arguments.world.force_mpi_links = true;
    } else if (word == "--slot-bytes") {
      arguments.world.links.slot_bytes = std::stoul(value());
    } else if (word == "--num-slots") {
      arguments.world.links.num_slots = std::stoi(value());
    } else if (word == "--progress-thread") {
      arguments.world.progress_thread = comm::parse_progress_thread(value());
    } else if (word == "--max-count") {
      arguments.max_count = std::stoul(value());
    } else {
      arguments.what = word;
    }
  }
  if (arguments.what == "mpi") arguments.world.backend = comm::BackendKind::Mpi;
  if (arguments.what == "staged") {
    arguments.world.gpus = std::make_shared<HostGpus>();
    arguments.world.gpu_mode = comm::GpuMode::Staged;
  }
  if (arguments.what == "paced") arguments.world.emulate_links = "intra=1,inter=0.01";
  return arguments;
}

Tally check(comm::World& world, const Arguments& arguments) {
  Tally tally;
  if (arguments.what == "paced") {
    check_pace(world, tally);
    return tally;
  }
  if (arguments.what == "staged") {
    check_staged(world, tally);
    return tally;
  }
  if (arguments.what == "compute") {
    check_progress(world, tally);
    return tally;
  }
  check_collectives(world, arguments, tally);
  check_product(world, arguments.world.backend == comm::BackendKind::Own, tally);
  check_point_to_point(world, Category::Other, arguments.max_count, tally);
  check_point_to_point(world, Category::Communication, arguments.max_count, tally);
  check_split(world, tally);
  check_clocks(world, tally);
  return tally;
}

}  // namespace
}  // namespace sixfold::test

int main(int argc, char** argv) {
  using namespace sixfold;
  bool right = true;
  try {
    const test::Arguments arguments = test::parse(argc, argv);
    comm::run_world(arguments.world, [&](comm::World& world) {
      if (arguments.what == "mismatch") return test::disagree(world);
      if (arguments.what == "disagreed") return test::compute_until_failure(world, true);
      if (arguments.what == "failed") return test::compute_until_failure(world, false);
      if (arguments.what == "throw") return test::fail_on_one_rank(world);
      const test::Tally tally = test::check(world, arguments);
      int32_t wrong = tally.num_wrong;
      comm::Communicator all =
          world.open_group(arguments.world.gpus ? comm::BackendKind::Host : arguments.world.backend, false);
      all.all_reduce({&wrong, 1, DType::I32}, {&wrong, 1, DType::I32}, ReduceOp::Sum).wait();
      if (world.rank() == 0) std::printf("CHECKED %d cases, %d wrong over all ranks\n", tally.num_cases, wrong);
      right = wrong == 0;
    });
  } catch (const ConfigError& error) {
    log_error(error.what());
    return 2;
  }
  return right ? 0 : 1;
}
