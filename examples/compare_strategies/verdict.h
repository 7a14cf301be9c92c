// Which axis belongs inside the node: what the communication of each axis of a strategy would cost on the links of a
// hardware profile, if its groups lay within nodes (NVLink), and if each rank of a group were on another node
// (InfiniBand, a network card for each rank). Pure.
//
// The rule. A message is on the critical path where the next computation needs what it brings and nothing else is left
// to compute meanwhile. All others hide behind computation, as far as there is some while they are under way:
//
//   messages                               on the critical path                      the others hide behind
//   tp.*                                   all but the next line
//   tp.attn_in.grad, mlp_in.grad,          none                                      backward
//     head_in.grad, regather
//   sp.*                                   all
//   pp.activation, pp.gradient             p-1 each (filling and draining)           all
//   dp.grads, zero1.grads                  the last bucket                           backward of the last micro-batch
//     with --deterministic                 the last bucket of each micro-batch       backward
//   zero2.grads, zero3.grads, hsdp.grads   the last of a step                        backward
//   zero1.params, zero2.params             the first bucket                          forward of the first micro-batch
//   zero3.gather                           the first of forward and of backward      all
//   sums of a few numbers, pp.tied         all
//   everything with no-overlap, but pp     all
//
// Backward is two thirds of the computation of a step. With that, for each of the last column's stretches apart,
//
//   waited(axis, link) = time(critical messages) + sum over stretches of max(0, time(messages) - stretch)
//
// The penalty of an axis is waited(InfiniBand) - waited(NVLink): what every step loses when its groups leave the node.
// The axis with the largest penalty belongs inside, the one with the smallest may cross first. Penalties that differ by
// less than a tenth are as good as equal: then the axis whose messages take longer in all belongs further inside, since
// it has more that must find computation to hide behind. A group in which dp and sp ranks add up gradients together
// leaves the node whichever of the two does, so it loses nothing by where they lie: it has no say and comes last, as
// dp. An axis that is alone belongs inside where its messages on the critical path take more than half of the time of
// all, whatever there is to compute: the others may cross where computation is long enough. Narayanan et al., SC 2021,
// section 3, come to the same order (tensor parallelism inside) by measurement.
//
// compute: FLOP of a rank and step at half of the profile's rate of matrix products (what large models reach, ibid.,
// table 1), or, where the profile has none, the part of a step here in which no communication was in the way. Times:
// comm/schedule/closed_form.h with the algorithm that the cost model picks for each message size, slots as NCCL's (8 of
// 512 KiB); messages of one tag count with their mean size, which is exact as far as cost is linear in it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "examples/compare_strategies/record.h"
#include "runtime/comm/schedule/profile.h"

namespace sixfold::compare_strategies {

/// The rule, for whoever reads a verdict.
inline constexpr const char* kVerdictRule =
    "The axis that loses most when its groups leave the node belongs inside, the one that loses least may cross first; "
    "where two lose the same to a tenth, the one whose messages take longer belongs further inside. "
    "A group that dp and sp ranks form together for their gradients leaves the node whichever of the two does, so it "
    "has no say: there dp may cross. An axis that is alone belongs inside where most of the time of its messages is on "
    "the critical path.";

struct LinkTimes {
  double all_ms = 0;       // of a rank's messages in a step, one after the other
  double critical_ms = 0;  // those on the critical path
  double waited_ms = 0;    // the rule above
};

/// Node: inside, by the rule. Network: may cross. Either: one of three axes or more that is neither first nor last.
enum class SuitableLink : uint8_t { Node, Either, Network };

/// One axis of one strategy, per step and rank.
struct AxisCost {
  std::string axis;  // axis_of_tag()
  int group_size = 1;
  double messages = 0, largest_mb = 0;  // largest: the mean of the tag whose messages are largest
  std::optional<double> sent_mb = 0;    // not known where links are not counted
  double critical_mb = 0;               // of operations (CommEntry::bytes) on the critical path
  LinkTimes intra, inter;
  double critical_share = 0;       // of the time of a rank's own messages across nodes: those on the critical path
  double measured_exposed_ms = 0;  // here, late ranks included
  SuitableLink link = SuitableLink::Network;

  double penalty_ms() const { return inter.waited_ms - intra.waited_ms; }
  /// The axis as a placement names it: dp for what dp and sp ranks share.
  std::string name() const { return axis == kSharedAxis ? "dp" : axis; }
};

struct Verdict {
  std::string profile;
  double compute_ms = 0;
  std::vector<AxisCost> axes;  // the first belongs inside the node, if any does

  /// "tp inside the node; dp may cross": AxisCost::link of all axes in words.
  std::string text() const;
};

/// Of one strategy; without axes where nothing is communicated. `profile` has passed check_profile.
Verdict judge(const StrategyRecord& record, const comm::Profile& profile);

/// "node", "either", "network".
const char* link_name(SuitableLink link);

}  // namespace sixfold::compare_strategies
