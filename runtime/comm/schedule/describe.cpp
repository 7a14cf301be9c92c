#include "runtime/comm/schedule/describe.h"

#include <vector>

#include "runtime/comm/schedule/rounds.h"

namespace sixfold::comm {

namespace {

std::string ring_text(const Topology& topology) {
  std::string text;
  for (int rank : topology.ring_order()) text += std::to_string(rank) + " > ";
  return text + std::to_string(topology.ring_order().front());
}

/// To whom each rank sends on `channel` of a reduction to rank 0: its parent.
std::string tree_text(const Topology& topology, Algorithm algorithm, int channel) {
  std::string text;
  Call call;
  call.primitive = Primitive::Reduce;
  call.size = topology.size();
  call.count = call.pass_count = 2;  // one element for each of two trees
  call.topology = &topology;
  for (call.rank = 0; call.rank < call.size; ++call.rank) {
    for (const Step& step : find_builder(Primitive::Reduce, algorithm)(call).steps) {
      if (step.send_peer == kNoPeer || step.channel != channel) continue;
      text += (text.empty() ? "" : ", ") + std::to_string(call.rank) + " < " + std::to_string(step.send_peer);
    }
  }
  return text;
}

}  // namespace

std::string describe_group(const Topology& topology) {
  std::string text = "nodes    " + topology.to_string() + "\nring     " + ring_text(topology) + "\n";
  if (topology.size() == 1) return text;
  text += "tree     " + tree_text(topology, Algorithm::Tree, 0) + "\n";
  text += "2 trees  " + tree_text(topology, Algorithm::DoubleTree, 0) + "\n";
  text += "         " + tree_text(topology, Algorithm::DoubleTree, 1) + "\n";
  return text;
}

std::string describe_schedule(const Call& call, const std::function<Schedule(const Call&)>& builder) {
  std::vector<Schedule> schedules;
  Call of_rank = call;
  for (of_rank.rank = 0; of_rank.rank < call.size; ++of_rank.rank) schedules.push_back(builder(of_rank));

  std::string text = "steps of rank 0\n";
  for (const Step& step : schedules[0].steps) text += "  " + to_string(step) + "\n";
  int round = -1;
  for (const TimedMessage& message : messages_by_round(schedules)) {
    if (message.round != round) text += "round " + std::to_string(message.round + 1) + "\n";
    round = message.round;
    const Step& step = schedules[static_cast<size_t>(message.sender)].steps[message.step];
    text +=
        "  " + std::to_string(message.sender) + " > " + std::to_string(step.send_peer) + "  " + to_string(step) + "\n";
  }
  return text;
}

}  // namespace sixfold::comm
