#include "examples/collective_perf/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "examples/collective_perf/measure.h"
#include "runtime/comm/host/progress.h"
#include "runtime/core/device.h"

namespace sixfold::collective_perf {

namespace {

constexpr int kBatches = 51, kRoundTrips = 100;
constexpr int kSpins = 2000;  // then waits yield, since the other rank may need this core

/// Each is written by one rank alone, on lines of its own (two, since some processors fetch lines in pairs).
struct Flags {
  alignas(128) std::atomic<uint32_t> ping;
  alignas(128) std::atomic<uint32_t> pong;
};

void await(const std::atomic<uint32_t>& flag, uint32_t value, double timeout_s) {
  for (int i = 0; i < kSpins; ++i) {
    if (flag.load(std::memory_order_acquire) == value) return;
  }
  const double deadline = comm::seconds_now() + timeout_s;
  while (flag.load(std::memory_order_acquire) != value) {
    sched_yield();
    if (comm::seconds_now() > deadline) throw CommError("ping-pong of ranks 0 and 1: no answer in time (--timeout)");
  }
}

/// Between ranks 0 and 1, one of which calls it with `first`. Seconds of one way, the median over batches.
double ping_pong(Flags& flags, bool first, double timeout_s) {
  std::vector<double> one_way;
  uint32_t value = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    const double start = comm::seconds_now();
    for (int i = 0; i < kRoundTrips; ++i) {
      ++value;
      if (first) flags.ping.store(value, std::memory_order_release);
      await(first ? flags.pong : flags.ping, value, timeout_s);
      if (!first) flags.pong.store(value, std::memory_order_release);
    }
    one_way.push_back((comm::seconds_now() - start) / (2 * kRoundTrips));
  }
  return median(one_way);
}

/// Source and destination of one rank, together: beyond its part of the last-level cache. Where that is no single one,
/// sysconf knows the size of one, and 64 MiB a rank are beyond what a core has of any; on machines with many ranks and
/// little memory an eighth of it must do.
size_t copied_bytes(int num_on_host) {
  const auto ranks = static_cast<size_t>(num_on_host);
  const long cache = std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), 0L);
  const size_t memory = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return std::max(4 * static_cast<size_t>(cache) / ranks, std::min(size_t{64} << 20, memory / 8 / ranks));
}

/// Seconds that the slowest rank needs for a copy of `bytes` bytes while all do the same; the median of 5.
double time_copy(size_t bytes, comm::Communicator& clock) {
  Memory memory;  // of its own, which gives the blocks back
  const Shape shape = {static_cast<int64_t>(bytes)};
  const Tensor from = Tensor::zeros(shape, DType::U8, memory, Category::Other);
  const Tensor to = Tensor::zeros(shape, DType::U8, memory, Category::Other);
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    clock.barrier();
    const double start = comm::seconds_now();
    std::memcpy(to.raw(), from.raw(), bytes);
    seconds.push_back(slowest(comm::seconds_now() - start, clock));
  }
  return median(seconds);
}

}  // namespace

Machine measure_machine(comm::World& world, comm::Communicator& clock, double timeout_s) {
  Machine machine;
  const comm::Topology& hosts = world.hosts();
  machine.num_on_host = static_cast<int>(hosts.ranks_of(hosts.node_of(0)).size());
  // The copies come first: ranks that have been busy for a while are no longer on one core where there are several.
  const size_t bytes = copied_bytes(machine.num_on_host) / 2;
  machine.copy_bytes_per_s = 2 * static_cast<double>(bytes) / time_copy(bytes, clock);
  const auto region = world.share(sizeof(Flags));
  clock.barrier();
  if (world.size() > 1 && hosts.node_of(0) == hosts.node_of(1) && world.rank() <= 1) {
    machine.one_way_seconds = ping_pong(*reinterpret_cast<Flags*>(region->data()), world.rank() == 0, timeout_s);
  }
  clock.barrier();
  return machine;
}

Machine measure_gpu(comm::World& world, comm::Communicator& clock, int num_sharing) {
  Machine machine;
  machine.num_on_host = num_sharing;
  double bytes_per_s = 0;
  if (world.rank() == 0) {
    const DeviceSpeed speed = measure_device();
    machine.gpu = speed.name;
    bytes_per_s = speed.copy_bytes_per_s;
  }
  auto whole = static_cast<int64_t>(bytes_per_s);
  clock.broadcast(comm::Buf(&whole, 1, DType::I64), 0).wait();
  machine.copy_bytes_per_s = static_cast<double>(whole) / num_sharing;
  return machine;
}

double necessary_bytes(comm::Primitive primitive, uint64_t bytes, int size) {
  if (size == 1) return 0;
  const double full = static_cast<double>(bytes), n = size;
  switch (primitive) {
    case comm::Primitive::Broadcast:
    case comm::Primitive::AllGather:
      return full;
    case comm::Primitive::Reduce:
    case comm::Primitive::ReduceScatter:
      return (n + 1) / n * full;
    case comm::Primitive::AllToAll:
      return 2 * (n - 1) / n * full;
    default:
      return 2 * full;
  }
}

double memory_share(const Machine& machine, comm::Primitive primitive, uint64_t bytes, int size, double seconds) {
  return necessary_bytes(primitive, bytes, size) / seconds / machine.copy_bytes_per_s;
}

}  // namespace sixfold::collective_perf
