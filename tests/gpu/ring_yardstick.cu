// How close the interpreter of instruction lists comes to a ring written by hand, on one GPU that all ranks share.
//
//   build/ring_yardstick        a line for each number of ranks and size: both rates, and the ratio
//
// Rates are bytes that go through the GPU's memory (6 N - 4 times the message) by time. Exit status 1: a wrong sum, or
// no GPU.
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "runtime/comm/cuda/device/block_platform.cuh"
#include "runtime/comm/cuda/grid_device.h"
#include "runtime/comm/schedule/topology.h"
#include "runtime/core/cuda/cuda_error.h"
#include "runtime/core/cuda/device_memory.h"
#include "runtime/core/cuda/stream.h"
#include "runtime/core/device.h"
#include "tests/gpu/ring_by_hand.h"
#include "tests/gpu/timing.h"

namespace sixfold::test {
namespace {

using cuda::check_cuda;

constexpr uint32_t kSlotElements = 64 * 1024 / sizeof(float);
constexpr uint32_t kMaxBlocks = 16;  // of a rank, as the interpreter has
constexpr int kWarmups = 1, kLaunches = 10;

__global__ __launch_bounds__(comm::kBlockThreads) void ring(const __grid_constant__ RingArguments arguments,
                                                            const comm::KernelControl control) {
  comm::BlockPlatform platform(control, blockIdx.y);
  ring_by_hand(platform, arguments, blockIdx.y, blockIdx.x, gridDim.x);
}

/// Inputs and outputs of all ranks; element i of rank r is i % 100 + r.
class Buffers {
 public:
  Buffers(uint32_t num_ranks, uint64_t count) : count_(count) {
    std::vector<float> values(count);
    for (uint32_t rank = 0; rank < num_ranks; ++rank) {
      for (uint64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 100 + rank);
      in_.push_back(std::make_unique<cuda::DeviceBlock>(count * sizeof(float)));
      out_.push_back(std::make_unique<cuda::DeviceBlock>(count * sizeof(float)));
      check_cuda(cudaMemcpy(in_.back()->data(), values.data(), count * sizeof(float), cudaMemcpyHostToDevice), "copy");
    }
  }
  const float* in(uint32_t rank) const { return reinterpret_cast<const float*>(in_[rank]->data()); }
  float* out(uint32_t rank) const { return reinterpret_cast<float*>(out_[rank]->data()); }
  void poison() const {
    for (const auto& block : out_) check_cuda(cudaMemset(block->data(), 0xff, count_ * sizeof(float)), "cudaMemset");
  }
  void check(const char* what) const {
    const auto n = static_cast<uint32_t>(out_.size());
    std::vector<float> values(count_);
    for (uint32_t rank = 0; rank < n; ++rank) {
      check_cuda(cudaMemcpy(values.data(), out(rank), count_ * sizeof(float), cudaMemcpyDeviceToHost), "copy");
      for (uint64_t i = 0; i < count_; ++i) {
        if (values[i] == static_cast<float>(n * (i % 100) + n * (n - 1) / 2)) continue;
        std::fprintf(stderr, "%s, %u ranks: element %llu of rank %u is %g\n", what, n,
                     static_cast<unsigned long long>(i), rank, static_cast<double>(values[i]));
        std::exit(1);
      }
    }
  }

 private:
  uint64_t count_;
  std::vector<std::unique_ptr<cuda::DeviceBlock>> in_, out_;
};

double by_hand(uint32_t num_ranks, uint64_t count, const Buffers& buffers, const cuda::Stream& stream) {
  int per_multiprocessor = 0, num_multiprocessors = 0;
  check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, ring, comm::kBlockThreads, 0),
             "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  check_cuda(cudaDeviceGetAttribute(&num_multiprocessors, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
  const auto resident = static_cast<uint32_t>(per_multiprocessor * num_multiprocessors);
  const uint32_t blocks = std::min(kMaxBlocks, resident / num_ranks);
  const cuda::DeviceBlock slots(size_t{num_ranks} * blocks * kRingSlots * kSlotElements * sizeof(float));
  const cuda::DeviceBlock flags(size_t{num_ranks} * blocks * 2 * comm::kFlagStride * sizeof(uint64_t));
  flags.zero(flags.bytes(), stream.get());
  const cuda::PinnedMemory shared(2 * 128);
  comm::KernelControl control;
  control.abort = reinterpret_cast<const uint32_t*>(shared.data());
  control.stuck = reinterpret_cast<comm::StuckRecord*>(shared.data() + 128);
  control.timeout_ns = 10'000'000'000;
  RingArguments a;
  for (uint32_t rank = 0; rank < num_ranks; ++rank) {
    a.input[rank] = buffers.in(rank);
    a.output[rank] = buffers.out(rank);
  }
  a.slots = reinterpret_cast<float*>(slots.data());
  a.flags = reinterpret_cast<uint64_t*>(flags.data());
  a.count = count;
  a.num_ranks = num_ranks;
  a.slot_elements = kSlotElements;
  const double seconds = seconds_of(stream.get(), kWarmups, kLaunches, [&] {
    void* parameters[] = {&a, &control};
    check_cuda(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&ring), dim3(blocks, num_ranks),
                                           dim3(comm::kBlockThreads), parameters, 0, stream.get()),
               "launch of the ring");
    a.first_message += ring_messages(a, blocks);
  });
  if (control.stuck->set != 0) throw CommError(comm::to_string(*control.stuck));
  return seconds;
}

double by_lists(uint32_t num_ranks, uint64_t count, const Buffers& buffers, const cuda::Stream& stream,
                comm::GridDevice& grid) {
  const comm::Topology topology = comm::Topology::one_node(static_cast<int>(num_ranks));
  comm::GridCollective collective;
  collective.call.size = static_cast<int>(num_ranks);
  collective.call.count = count;
  collective.call.topology = &topology;
  collective.algorithm = comm::Algorithm::Ring;
  for (uint32_t rank = 0; rank < num_ranks; ++rank) {
    collective.in.push_back(buffers.in(rank));
    collective.out.push_back(buffers.out(rank));
    collective.in_place.push_back(false);
  }
  std::shared_ptr<comm::GridWork> work;
  const double seconds = seconds_of(stream.get(), kWarmups, kLaunches, [&] {
    collective.after = {grid.mark(stream.get())};
    work = grid.launch(collective);
    work->order_before(stream.get());
  });
  while (!work->done()) std::this_thread::yield();
  return seconds;
}

void compare(uint32_t num_ranks, uint64_t bytes, comm::GridDevice& grid) {
  const uint64_t count = bytes / sizeof(float);
  const Buffers buffers(num_ranks, count);
  const cuda::Stream stream;
  buffers.poison();
  const double hand = by_hand(num_ranks, count, buffers, stream);
  buffers.check("by hand");
  buffers.poison();
  const double lists = by_lists(num_ranks, count, buffers, stream, grid);
  buffers.check("by lists");
  const double moved = static_cast<double>(bytes) * (6.0 * num_ranks - 4);
  std::printf("%5u %11llu %12.1f %12.1f %7.0f%%\n", num_ranks, static_cast<unsigned long long>(bytes),
              moved / hand * 1e-9, moved / lists * 1e-9, 100 * hand / lists);
}

int run() {
  const CudaProbe probe = probe_cuda();
  if (probe.num_devices == 0) {
    std::fprintf(stderr, "ring_yardstick needs a GPU: %s\n", probe.problem.c_str());
    return 2;
  }
  const std::unique_ptr<comm::GridDevice> grid = comm::make_cuda_grid(0, 10);
  std::printf("%5s %11s %12s %12s %8s\n", "ranks", "bytes", "by hand GB/s", "lists GB/s", "lists");
  for (uint32_t num_ranks : {2, 4, 8}) {
    for (uint64_t mib : {1, 8, 64, 256}) compare(num_ranks, mib << 20, *grid);
  }
  return 0;
}

}  // namespace
}  // namespace sixfold::test

int main() {
  return sixfold::test::exit_status(sixfold::test::run);
}
