#include "examples/compare_strategies/verdict.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "examples/compare_strategies/checks.h"
#include "runtime/comm/schedule/closed_form.h"
#include "runtime/comm/schedule/tune.h"

namespace sixfold::compare_strategies {

namespace {

constexpr double kReachedShare = 0.5;  // of the rate of matrix products
constexpr double kCloseShare = 0.1;    // penalties that differ by less are as good as equal
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

bool is_whole_reduction(const std::string& tag) {
  return is_one_of(tag, {"dp.grads", "zero1.grads"});
}
bool is_beside_weight_gradients(const std::string& tag) {
  return is_one_of(tag, {"tp.attn_in.grad", "tp.mlp_in.grad", "tp.head_in.grad", "tp.regather"});
}

/// How many of the entry's messages in a step are on the critical path.
double critical_calls(const StrategyRecord& record, const CommEntry& entry) {
  const double pieces = entry.tag.starts_with("zero1.") ? entry.group_size : 1;  // of a bucket
  double calls = entry.calls;
  if (is_one_of(entry.tag, {"pp.activation", "pp.gradient"})) {
    calls = record.mesh.pp - 1;
  } else if (!record.overlap) {
    calls = entry.calls;
  } else if (is_beside_weight_gradients(entry.tag)) {
    calls = 0;
  } else if (is_whole_reduction(entry.tag)) {
    calls = pieces * (record.reduces_each_micro_batch ? record.micro_batches : 1);
  } else if (is_one_of(entry.tag, {"zero2.grads", "zero3.grads", "hsdp.grads", "zero1.params", "zero2.params"})) {
    calls = pieces;
  } else if (entry.tag == "zero3.gather") {
    calls = 2;
  }
  return std::min(calls, entry.calls);
}

/// What the others hide behind, as a share of the computation of a step.
double stretch_of(const StrategyRecord& record, const std::string& tag) {
  constexpr double kForward = 1.0 / 3, kBackward = 2.0 / 3;
  const bool is_last_alone = is_whole_reduction(tag) && !record.reduces_each_micro_batch;
  if (is_last_alone) return kBackward / record.micro_batches;
  if (is_one_of(tag, {"zero1.params", "zero2.params"})) return kForward / record.micro_batches;
  const bool in_backward = is_whole_reduction(tag) || is_beside_weight_gradients(tag) ||
                           is_one_of(tag, {"zero2.grads", "zero3.grads", "hsdp.grads"});
  return in_backward ? kBackward : 1;
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

std::optional<double> in_megabytes(const std::optional<double>& bytes) {
  return bytes ? std::optional(*bytes / kMega) : std::nullopt;
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
  std::map<double, double> hiding_ms;  // by stretch
  for (const CommEntry* entry : entries) {
    const double ms = 1e3 * pricing.seconds(*entry, link), calls = critical_calls(record, *entry);
    times.all_ms += ms * entry->calls;
    times.critical_ms += ms * calls;
    hiding_ms[stretch_of(record, entry->tag)] += ms * (entry->calls - calls);
  }
  times.waited_ms = times.critical_ms;
  for (const auto& [stretch, ms] : hiding_ms) times.waited_ms += std::max(0.0, ms - stretch * compute_ms);
  return times;
}

/// By the rule; groups of two axes last.
void sort_by_loss(std::vector<AxisCost>& axes) {
  std::sort(axes.begin(), axes.end(), [](const AxisCost& a, const AxisCost& b) {
    const auto key = [](const AxisCost& cost) { return std::tuple(cost.axis != kSharedAxis, cost.penalty_ms()); };
    return key(a) > key(b);
  });
  for (size_t i = 0; i + 1 < axes.size(); ++i) {
    const AxisCost &more = axes[i], &less = axes[i + 1];
    const bool is_close = less.axis != kSharedAxis && less.penalty_ms() >= (1 - kCloseShare) * more.penalty_ms();
    if (is_close && less.inter.all_ms > more.inter.all_ms) std::swap(axes[i], axes[i + 1]);
  }
}

/// Of axes in order.
void choose_links(std::vector<AxisCost>& axes) {
  for (AxisCost& axis : axes) axis.link = SuitableLink::Either;
  if (axes.empty()) return;
  const bool needs_node = axes.size() > 1 || axes.front().critical_share > 0.5;
  axes.back().link = SuitableLink::Network;
  if (needs_node) axes.front().link = SuitableLink::Node;
}

}  // namespace

std::string Verdict::text() const {
  std::string inside, either, across;
  for (const AxisCost& axis : axes) {
    if (axis.link == SuitableLink::Node) inside = axis.name() + " inside the node";
    if (axis.link == SuitableLink::Network) across = axis.name() + " may cross";
    if (axis.link == SuitableLink::Either) either = axis.name() + (either.empty() ? "" : ", " + either);
  }
  if (axes.empty()) return "nothing is communicated";
  if (!either.empty()) across += " first, then " + either;
  return inside + (inside.empty() || across.empty() ? "" : "; ") + across;
}

const char* link_name(SuitableLink link) {
  const char* const names[] = {"node", "either", "network"};
  return names[static_cast<size_t>(link)];
}

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
      cost.sent_mb = sum_of(cost.sent_mb, in_megabytes(entry->sent_bytes));
      cost.largest_mb = std::max(cost.largest_mb, mb);
      cost.critical_mb += mb * critical_calls(record, *entry);
    }
    cost.critical_share = critical_share(record, entries, pricing);
    cost.intra = times_of(record, entries, comm::LinkClass::Intra, verdict.compute_ms, pricing);
    cost.inter = times_of(record, entries, comm::LinkClass::Inter, verdict.compute_ms, pricing);
  }
  for (AxisCost& cost : verdict.axes) cost.measured_exposed_ms = median(record.exposed_steps({cost.axis}));
  sort_by_loss(verdict.axes);
  choose_links(verdict.axes);
  return verdict;
}

}  // namespace sixfold::compare_strategies
