// verify(): proof of a collective by symbolic replay of the schedules of all ranks.
//
// Each element of each buffer holds which ranks' contributions it contains, and of which of their elements. The replay
// cuts steps into slices of slot_elements and links into num_slots slots, as the executors do, and runs consecutive
// passes; since channels synchronise only where the schedule says so, it replays several orders of progress between
// them.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/schedule/schedule.h"

namespace sixfold::comm {

enum class Fault : uint8_t {
  None,
  Deadlock,         // no rank can go on: a missing step, or too few slots
  SizeMismatch,     // a receive meets a message of another size
  ReadBeforeWrite,  // a step reads an element of Output, Scratch or Accum that holds nothing yet
  DoubleAdd,        // a step adds a rank's contribution to a sum that contains it already
  MissingAdd,       // a result lacks a contribution, or was never written
  WrongElement,     // a result holds another element's contribution
  Unfinished,       // a reduced result was not scaled exactly once, after the last addition
  Leftover,         // a message was sent that nobody received
  OutOfRange,  // a step touches elements beyond its buffer, names a rank or step that does not exist, writes to Input,
               // or lacks an operand
};
std::string_view fault_name(Fault fault);

inline constexpr int kMaxVerifyRanks = 64;

/// Elements by LinkClass: [Intra], [Inter].
using SentByLink = std::array<size_t, 2>;

struct VerifyReport {
  Fault fault = Fault::None;
  std::string detail;                    // names rank, channel, step, element
  std::vector<size_t> sent_elements;     // per rank, over all passes; empty where there is a fault
  std::vector<SentByLink> sent_by_link;  // the same by link class; empty without call.topology
  int rounds = 0;                        // makespan of one pass when each message takes one unit of time and a rank
                                         // sends at most one and receives at most one message at a time
  bool ok() const { return fault == Fault::None; }
};

/// Replays all passes of `call` (rank and pass fields are ignored) built by `builder`: passes of `pass_count` elements,
/// which is to be at most max_pass_count(...) for a step capacity of (num_slots - 1) * slot_elements. num_slots >= 2,
/// slot_elements
/// >= 1, call.size <= kMaxVerifyRanks (CheckError).
VerifyReport verify(const Call& call, const std::function<Schedule(const Call&)>& builder, int num_slots,
                    size_t slot_elements, size_t pass_count);

}  // namespace sixfold::comm
