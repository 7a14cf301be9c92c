#include "examples/compare_strategies/verdict.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "runtime/comm/schedule/closed_form.h"
#include "runtime/comm/schedule/tune.h"

namespace sixfold::compare_strategies {

namespace {

constexpr double kReachedShare = 0.5;  // of the rate of matrix products
constexpr size_t kElementBytes = 4;
constexpr double kMega = 1e6;

/// Times of messages on one profile's links.
class Pricing {
 public:
  explicit Pricing(const comm::Profile& profile) : profile_(profile) {}

  double seconds(const CommEntry& entry, comm::LinkClass link) {
    const double bytes = entry.bytes / entry.calls;
    if (entry.primitive == "send") {
      const comm::LinkRate& rate = profile_.link(link);
      return rate.alpha_s + bytes / rate.bytes_per_s;
    }
    comm::CostQuery query;
    query.primitive = comm::parse_primitive(entry.primitive);
    query.num_nodes = link == comm::LinkClass::Intra ? 1 : entry.group_size;
    query.ranks_per_node = entry.group_size / query.num_nodes;
    query.links = links_;
    query.element_bytes = kElementBytes;
    const comm::Topology topology = topology_of(query);
    query.algorithm = comm::select(query.primitive, static_cast<size_t>(bytes), topology, false, table_of(topology));
    const bool whole = query.primitive == comm::Primitive::Broadcast || query.primitive == comm::Primitive::Reduce ||
                       query.primitive == comm::Primitive::AllReduce;
    const double count = bytes / kElementBytes / (whole ? 1 : entry.group_size);
    query.count = static_cast<size_t>(std::ceil(count));
    return comm::predict_seconds(query, profile_, kMaxSlices).seconds;
  }

 private:
  static constexpr double kMaxSlices = 2e4;  // larger messages by closed form: a table has hundreds of them

  static comm::Topology topology_of(const comm::CostQuery& query) {
    std::vector<int> node_of;
    for (int rank = 0; rank < query.size(); ++rank) node_of.push_back(rank / query.ranks_per_node);
    return comm::Topology(node_of);
  }
  const comm::SelectTable& table_of(const comm::Topology& topology) {
    const auto key = std::pair(topology.size(), topology.num_nodes());
    const auto found = tables_.find(key);
    if (found != tables_.end()) return found->second;
    return tables_.emplace(key, comm::make_select_table(profile_, topology, links_)).first->second;
  }

  const comm::Profile& profile_;
  const comm::LinkShape links_{8, 512 * 1024};
  std::map<std::pair<int, int>, comm::SelectTable> tables_;
};

bool is_one_of(const std::string& tag, std::initializer_list<const char*> tags) {
  return std::any_of(tags.begin(), tags.end(), [&](const char* other) { return tag == other; });
}

/// How many of the entry's messages in a step are on the critical path.
double critical_calls(const StrategyRecord& record, const CommEntry& entry) {
  double calls = entry.calls;
  if (is_one_of(entry.tag, {"pp.activation", "pp.gradient"})) {
    calls = record.mesh.pp - 1;
  } else if (!record.overlap) {
    calls = entry.calls;
  } else if (is_one_of(entry.tag, {"tp.attn_in.grad", "tp.mlp_in.grad", "tp.head_in.grad", "tp.regather"})) {
    calls = 0;
  } else if (is_one_of(entry.tag, {"dp.grads", "zero1.grads", "zero2.grads", "zero3.grads", "hsdp.grads",
                                   "zero1.params", "zero2.params"})) {
    calls = 1;
  } else if (entry.tag == "zero3.gather") {
    calls = 2;
  }
  return std::min(calls, entry.calls);
}

/// The same of one rank's own messages: each hop that fills or drains a pipeline is another stage's.
double own_critical_calls(const StrategyRecord& record, const CommEntry& entry) {
  const bool travels = is_one_of(entry.tag, {"pp.activation", "pp.gradient"});
  return travels ? entry.calls / record.micro_batches : critical_calls(record, entry);
}

/// Messages of the record by axis; what is received is another rank's to send.
std::map<std::string, std::vector<const CommEntry*>> by_axis(const StrategyRecord& record) {
  std::map<std::string, std::vector<const CommEntry*>> axes;
  for (const CommEntry& entry : record.comm) {
    if (entry.sends() && entry.group_size > 1 && entry.calls > 0)
      axes[axis_of_tag(entry.tag, record.mesh)].push_back(&entry);
  }
  return axes;
}

double critical_share(const StrategyRecord& record, const std::vector<const CommEntry*>& entries, Pricing& pricing) {
  double own = 0, all = 0;
  for (const CommEntry* entry : entries) {
    const double seconds = pricing.seconds(*entry, comm::LinkClass::Inter);
    own += seconds * own_critical_calls(record, *entry);
    all += seconds * entry->calls;
  }
  return own / all;
}

LinkTimes times_of(const StrategyRecord& record, const std::vector<const CommEntry*>& entries, comm::LinkClass link,
                   double compute_ms, Pricing& pricing) {
  LinkTimes times;
  for (const CommEntry* entry : entries) {
    const double ms = 1e3 * pricing.seconds(*entry, link);
    times.all_ms += ms * entry->calls;
    times.critical_ms += ms * critical_calls(record, *entry);
  }
  times.waited_ms = times.critical_ms + std::max(0.0, times.all_ms - times.critical_ms - compute_ms);
  return times;
}

std::string verdict_text(const std::vector<AxisCost>& axes) {
  if (axes.empty()) return "nothing is communicated";
  std::vector<std::string> names;
  for (const AxisCost& axis : axes) names.push_back(axis.axis == kSharedAxis ? "dp" : axis.axis);
  if (names.size() == 1) return names[0] + " alone";
  std::string text = names.front() + " inside the node; " + names.back() + " may cross";
  for (size_t i = names.size() - 2; i > 0; --i) text += (i == names.size() - 2 ? " first, then " : ", ") + names[i];
  return text;
}

/// By penalty; groups of two axes last, see the header.
bool belongs_further_inside(const AxisCost& a, const AxisCost& b) {
  const auto key = [](const AxisCost& cost) {
    return std::tuple(cost.axis != kSharedAxis, cost.penalty_ms(), cost.critical_mb);
  };
  return key(a) > key(b);
}

}  // namespace

Verdict judge(const StrategyRecord& record, const comm::Profile& profile) {
  Verdict verdict;
  verdict.profile = profile.name;
  verdict.compute_ms = profile.matmul_flops > 0 ? 1e3 * record.flops / (kReachedShare * profile.matmul_flops)
                                                : std::max(0.0, record.median_ms - record.exposed_ms);
  Pricing pricing(profile);
  for (const auto& [axis, entries] : by_axis(record)) {
    AxisCost& cost = verdict.axes.emplace_back();
    cost.axis = axis;
    for (const CommEntry* entry : entries) {
      const double mb = entry->bytes / entry->calls / kMega;
      cost.group_size = std::max(cost.group_size, entry->group_size);
      cost.messages += entry->calls;
      cost.sent_mb += entry->sent_bytes / kMega;
      cost.largest_mb = std::max(cost.largest_mb, mb);
      cost.critical_mb += mb * critical_calls(record, *entry);
    }
    cost.critical_share = critical_share(record, entries, pricing);
    cost.intra = times_of(record, entries, comm::LinkClass::Intra, verdict.compute_ms, pricing);
    cost.inter = times_of(record, entries, comm::LinkClass::Inter, verdict.compute_ms, pricing);
  }
  for (const CommEntry& entry : record.comm) {
    for (AxisCost& cost : verdict.axes) {
      if (cost.axis == axis_of_tag(entry.tag, record.mesh)) cost.measured_exposed_ms += entry.exposed_ms;
    }
  }
  std::sort(verdict.axes.begin(), verdict.axes.end(), belongs_further_inside);
  verdict.text = verdict_text(verdict.axes);
  return verdict;
}

}  // namespace sixfold::compare_strategies
