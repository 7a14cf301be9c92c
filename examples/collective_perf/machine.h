// The machine as the ranks have it. Shared ones differ from hour to hour, so every table says what cores and memory
// gave while it was made.
#pragma once

#include <optional>
#include <string>

#include "runtime/comm/world.h"

namespace sixfold::collective_perf {

struct Machine {
  // A flag in shared memory that rank 0 raises, as rank 1 sees it, and back, halved; where the system put them: ranks
  // are not pinned. Known on rank 0. Empty where the two do not share memory.
  std::optional<double> one_way_seconds;
  // memcpy by all ranks at the same time, from memory to memory: bytes read + written per second, of one rank.
  double copy_bytes_per_s = 0;
  int num_on_host = 1;  // ranks of rank 0's host
  /// Where the buffers are on a GPU: its name. copy_bytes_per_s is then what a copy inside its memory reaches, divided
  /// by the ranks that share it.
  std::string gpu;
  // All ranks of a host together, in GB/s.
  double host_copy_gbs() const { return copy_bytes_per_s * num_on_host * 1e-9; }
};

/// Called by all ranks; takes a few tenths of a second. `clock` as for measure(). Throws CommError when rank 1 does not
/// answer within `timeout_s`.
Machine measure_machine(comm::World& world, comm::Communicator& clock, double timeout_s);

/// The same of the GPU of rank 0. num_sharing: ranks that share it.
Machine measure_gpu(comm::World& world, comm::Communicator& clock, int num_sharing);

/// Bytes that any algorithm has to read and write in the buffers of ranks that share memory, in place, on average over
/// the ranks: what somebody else needs is read once, what somebody else has is written once. S = `bytes` of the full
/// buffer, N = `size` ranks:
///
///   all_reduce, send_recv        2 S            (reads S, writes S)
///   all_to_all                   2 (N-1)/N S
///   broadcast, all_gather        S              (read once: S/N a rank; written N-1 times: (N-1)/N S a rank)
///   reduce, reduce_scatter       (N+1)/N S      (reads S; the result is written once: S/N a rank)
///
/// Not 2 x busbw: that counts what passes between ranks that have no memory in common, and for more than two ranks
/// those that do need less. One rank needs nothing.
double necessary_bytes(comm::Primitive primitive, uint64_t bytes, int size);

/// The share of copy_bytes_per_s that an operation of `seconds` reaches with necessary_bytes(). Above 1 the caches
/// carried what memory need not.
double memory_share(const Machine& machine, comm::Primitive primitive, uint64_t bytes, int size, double seconds);

}  // namespace sixfold::collective_perf
