// Which axis belongs inside the node: what the communication of each axis of a strategy would cost on the links of a
// hardware profile, if its groups lay within nodes (NVLink), and if each rank of a group were on another node
// (InfiniBand, a network card for each rank). Pure.
//
// The rule. A message is on the critical path where the next computation needs what it brings and nothing else is left
// to compute meanwhile:
//
//   tp.*      all, but for gradients that travel beside the weight gradients: attn_in.grad, mlp_in.grad, head_in.grad,
//             regather
//   sp.*      all
//   pp.*      p-1 activations and p-1 gradients (pipeline filling and draining), the tied gradient
//   dp.grads, zero1.grads, zero2.grads, zero3.grads, hsdp.grads      the last of a step
//   zero1.params, zero2.params                                       the first of a step
//   zero3.gather                                                     the first of forward and of backward
//   sums of a few numbers, and everything with no-overlap            all
//
// All others hide behind the computation of the step, as far as that is long enough:
//
//   waited(axis, link) = time(critical messages) + max(0, time(other messages) - compute)
//
// The penalty of an axis is waited(InfiniBand) - waited(NVLink): what every step loses when its groups leave the node.
// Axes are ordered by it: the first belongs inside, the last may cross first. Where penalties are equal, by the bytes
// on the critical path. Where dp and sp ranks add up gradients in one group, that group leaves the node whichever of
// the two lies outside: it comes last, and what may cross is dp. Narayanan et al., SC 2021, section 3, come to the same
// order (tensor parallelism inside) by measurement.
//
// compute: FLOP of a rank and step at half of the profile's rate of matrix products (what large models reach, ibid.,
// table 1), or, where the profile has none, the part of a step here in which no communication was in the way. Times:
// comm/schedule/closed_form.h with the algorithm that the cost model picks for each message size, slots as NCCL's (8 of
// 512 KiB); messages of one tag count with their mean size, which is exact as far as cost is linear in it.
#pragma once

#include <string>
#include <vector>

#include "examples/compare_strategies/record.h"
#include "runtime/comm/schedule/profile.h"

namespace sixfold::compare_strategies {

struct LinkTimes {
  double all_ms = 0;       // of a rank's messages in a step, one after the other
  double critical_ms = 0;  // those on the critical path
  double waited_ms = 0;    // the rule above
};

/// One axis of one strategy, per step and rank.
struct AxisCost {
  std::string axis;  // axis_of_tag()
  int group_size = 1;
  double messages = 0, sent_mb = 0, largest_mb = 0;  // largest: the mean of the tag whose messages are largest
  double critical_mb = 0;                            // of operations (CommEntry::bytes) on the critical path
  LinkTimes intra, inter;
  double critical_share = 0;       // of the time of a rank's own messages across nodes: those on the critical path
  double measured_exposed_ms = 0;  // here, late ranks included

  /// Whether it needs the links of a node: no computation is there for most of its messages to hide behind, however
  /// long it takes. The others can do with a network where computation is long enough.
  bool needs_node() const { return critical_share > 0.5; }
  double penalty_ms() const { return inter.waited_ms - intra.waited_ms; }
};

struct Verdict {
  std::string profile;
  double compute_ms = 0;
  std::vector<AxisCost> axes;  // the first belongs inside the node
  std::string text;            // "tp inside the node, dp may cross"
};

/// Of one strategy; without axes where nothing is communicated. `profile` has passed check_profile.
Verdict judge(const StrategyRecord& record, const comm::Profile& profile);

}  // namespace sixfold::compare_strategies
