#include "runtime/comm/schedule/closed_form.h"

#include "runtime/comm/schedule/closed_form_terms.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

/// By name, as --algorithm has it.
struct FormulaEntry {
  Primitive primitive;
  std::string_view algorithm;
  double (*seconds)(const Terms& terms);
};

constexpr FormulaEntry kFormulas[] = {
    {Primitive::Broadcast, "ring", chain_seconds},
    {Primitive::Broadcast, "tree", tree_seconds},
    {Primitive::Broadcast, "direct", direct_seconds},
    {Primitive::Broadcast, "binomial", binomial_seconds},
    {Primitive::Broadcast, "double_tree", double_tree_seconds},
    {Primitive::Broadcast, "hierarchical", hierarchical_tree_seconds},
    {Primitive::Reduce, "ring", chain_seconds},
    {Primitive::Reduce, "tree", tree_seconds},
    {Primitive::Reduce, "direct", direct_seconds},
    {Primitive::Reduce, "binomial", binomial_seconds},
    {Primitive::Reduce, "double_tree", double_tree_seconds},
    {Primitive::Reduce, "hierarchical", hierarchical_tree_seconds},
    {Primitive::AllReduce, "ring", ring_seconds},
    {Primitive::AllReduce, "tree", tree_seconds},
    {Primitive::AllReduce, "direct", direct_seconds},
    {Primitive::AllReduce, "double_tree", double_tree_seconds},
    {Primitive::AllReduce, "recursive_doubling", recursive_doubling_seconds},
    {Primitive::AllReduce, "halving_doubling", halving_doubling_seconds},
    {Primitive::AllReduce, "hierarchical", hierarchical_seconds},
    {Primitive::AllGather, "ring", ring_seconds},
    {Primitive::AllGather, "direct", direct_seconds},
    {Primitive::AllGather, "recursive_doubling", recursive_doubling_seconds},
    {Primitive::AllGather, "halving_doubling", halving_doubling_seconds},
    {Primitive::AllGather, "hierarchical", hierarchical_seconds},
    {Primitive::ReduceScatter, "ring", ring_seconds},
    {Primitive::ReduceScatter, "direct", direct_seconds},
    {Primitive::ReduceScatter, "halving_doubling", halving_doubling_seconds},
    {Primitive::ReduceScatter, "hierarchical", hierarchical_seconds},
    {Primitive::AllToAll, "pairwise", pairwise_seconds},
    {Primitive::AllToAll, "spread_out", spread_out_seconds},
    {Primitive::AllToAll, "hierarchical", hierarchical_exchange_seconds},
};

const FormulaEntry* find_formula(Primitive primitive, Algorithm algorithm) {
  for (const FormulaEntry& entry : kFormulas) {
    if (entry.primitive == primitive && entry.algorithm == algorithm_name(algorithm)) return &entry;
  }
  return nullptr;
}

std::string text_of(const CostQuery& query) {
  return std::string(primitive_name(query.primitive)) + " " + std::string(algorithm_name(query.algorithm));
}

Topology topology_of(const CostQuery& query) {
  std::vector<int> node_of;
  for (int rank = 0; rank < query.size(); ++rank) node_of.push_back(rank / query.ranks_per_node);
  return Topology(node_of);
}

/// What simulating takes: the slices of rank 0 in a full pass stand for everybody's.
double estimate_slices(const Call& call, Builder builder, size_t pass_count, size_t slice_elements) {
  Call first = call;
  first.pass_count = std::min(pass_count, call.count);
  double slices = 0;
  for (const Step& step : builder(first).steps) {
    slices += std::ceil(static_cast<double>(step.count()) / static_cast<double>(slice_elements));
  }
  return slices * call.size * std::ceil(static_cast<double>(call.count) / static_cast<double>(pass_count));
}

void check_query(const CostQuery& query) {
  SIXFOLD_CHECK(query.num_nodes >= 1 && query.ranks_per_node >= 1, "a group has nodes, and ranks on them");
  SIXFOLD_CHECK(query.links.num_slots >= 2 && query.element_bytes >= 1 && query.links.slot_bytes >= query.element_bytes,
                "links have two slots or more that hold an element");
}

}  // namespace

bool has_closed_form(Primitive primitive, Algorithm algorithm) {
  return find_formula(primitive, algorithm) != nullptr;
}

double closed_form_seconds(const CostQuery& query, const Profile& profile) {
  check_query(query);
  check_profile(profile);
  const FormulaEntry* formula = find_formula(query.primitive, query.algorithm);
  SIXFOLD_CHECK(formula != nullptr, "no closed form of " + text_of(query));
  if (query.size() == 1 || query.count == 0) return 0;
  return formula->seconds(Terms(query, profile));
}

Prediction predict_seconds(const CostQuery& query, const Profile& profile, double max_slices) {
  check_query(query);
  const Builder builder = find_builder(query.primitive, query.algorithm);
  SIXFOLD_CHECK(builder != nullptr, "there is no " + text_of(query));
  if (query.size() > kMaxSimulatedRanks) return {closed_form_seconds(query, profile), false};
  const Topology topology = topology_of(query);
  Call call;
  call.primitive = query.primitive;
  call.size = query.size();
  call.count = query.count;
  call.topology = &topology;
  call.step_capacity = query.links.step_capacity(query.element_bytes);
  const size_t pass_count =
      max_pass_count(query.primitive, query.algorithm, query.size(), call.step_capacity, query.count, &topology);
  const size_t slice_elements = query.links.slot_bytes / query.element_bytes;
  const bool quick = estimate_slices(call, builder, pass_count, slice_elements) <= max_slices;
  if (!quick) return {closed_form_seconds(query, profile), false};
  return {simulate(call, builder, query.links, query.element_bytes, pass_count, profile).seconds, true};
}

}  // namespace sixfold::comm
