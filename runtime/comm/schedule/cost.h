// cost: how long a collective takes, by discrete-event simulation of the schedules of all ranks.
//
// The simulation replays slices exactly as the executors do (steps cut into slices of at most one slot, FIFO links with
// num_slots credits, channels of a rank side by side, `after`, passes that follow on one another without a barrier) and
// gives each of them time:
//
//   start    a slice starts once the slice before it in its channel has ended, the slice that it waits for (`after`)
//            has ended, what it receives has arrived, and the link that it sends on has a free slot
//   compute  a reduction of b bytes occupies the rank's compute for b / gamma, a step without a reduction for b / copy
//            rate, or for nothing where the profile gives none. Channels of a rank take turns at its compute
//   end      its result is stored, the slot that it received in is free again (at once, for the sender too), and what
//            it sends waits at the egress port
//   egress   a port carries one slice at a time, in order of their ends, for b / beta each
//   ingress  the slice's first byte reaches the other end alpha after it left; there an ingress port receives one slice
//            at a time, in order of first bytes, for b / beta each. The slice has arrived when its last byte has
//
// So an unhindered slice takes alpha + b / beta from the end of the one step to the start of the next, alpha occupies
// nobody, and computing, sending and receiving overlap with one another but not with themselves. Each rank has an intra
// egress and an intra ingress port. Each node has an inter egress and an inter ingress port (its network card) that its
// ranks share, or num_rails of each, rank with rail i on number i modulo num_rails. What becomes ready at the same
// moment goes by turns, one slice a rank, lower ranks first. A rank is done when its last slice has ended: what it has
// sent last may still be on its way.
//
// With these rules messages of one slice take what the textbooks say (Thakur, Rabenseifner, Gropp, "Optimization of
// collective communication operations in MPICH", 2005, section 3): ring AllReduce of S bytes over N ranks
// 2(N-1) alpha + 2(N-1)/N S/beta + (N-1)/N S/gamma, and so on (closed_form.h).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/comm/schedule/profile.h"
#include "runtime/comm/schedule/schedule.h"

namespace sixfold::comm {

/// What the links of a group can hold, per (sender, receiver, channel).
struct LinkShape {
  int num_slots = 4;  // >= 2
  size_t slot_bytes = 64 * 1024;

  /// Elements that one step of a pass may move: (num_slots - 1) slots; see max_pass_count().
  size_t step_capacity(size_t element_bytes) const {
    return static_cast<size_t>(num_slots - 1) * (slot_bytes / element_bytes);
  }
};

struct CostReport {
  double seconds = 0;                    // until the last rank is done
  std::vector<double> finish_s;          // per rank: when it is done
  std::array<uint64_t, 2> sent_bytes{};  // over all ranks, by LinkClass
  uint64_t num_slices = 0;               // simulated, a measure of the simulation's own cost
};

/// Simulates all passes of `call` (rank and pass fields are ignored; without a topology all ranks are on one node),
/// built by `builder` in passes of `pass_count` elements, at most max_pass_count(..., links.step_capacity()). Time and
/// memory grow with the number of slices: about 2 million a second; larger slots make them fewer. Pure: the same
/// arguments give the same result, bit by bit. CheckError where the schedules deadlock, sizes disagree, or the
/// arguments make no sense.
CostReport simulate(const Call& call, const std::function<Schedule(const Call&)>& builder, const LinkShape& links,
                    size_t element_bytes, size_t pass_count, const Profile& profile);

}  // namespace sixfold::comm
