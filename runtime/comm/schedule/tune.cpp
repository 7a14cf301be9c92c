#include "runtime/comm/schedule/tune.h"

#include <algorithm>

#include "runtime/comm/schedule/closed_form.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

constexpr size_t kElementBytes = 4;
// 0.1 ms a price. Beyond that the closed forms are as good: what they are vague about is how few slices overlap.
constexpr double kMaxSlices = 300;

/// Of an operation of `bytes`, as operation_bytes() counts them.
CostQuery query_of(Primitive primitive, size_t bytes, const Topology& topology, const LinkShape& links) {
  size_t largest_node = 0;
  for (int node = 0; node < topology.num_nodes(); ++node) {
    largest_node = std::max(largest_node, topology.ranks_of(node).size());
  }
  CostQuery query;
  query.primitive = primitive;
  query.num_nodes = topology.num_nodes();
  query.ranks_per_node = static_cast<int>(largest_node);
  query.element_bytes = kElementBytes;
  query.links = links;
  const bool whole =
      primitive == Primitive::Broadcast || primitive == Primitive::Reduce || primitive == Primitive::AllReduce;
  const size_t blocks = whole ? 1 : static_cast<size_t>(topology.size());
  query.count = std::max(size_t{1}, bytes / kElementBytes / blocks);
  return query;
}

/// The cheapest algorithm for operations of `bytes`, and the next one.
SelectRow best_row(Primitive primitive, size_t bytes, const Profile& profile, const Topology& topology,
                   const LinkShape& links, const std::vector<Algorithm>& algorithms) {
  CostQuery query = query_of(primitive, bytes, topology, links);
  SelectRow row;
  row.primitive = primitive;
  row.num_ranks = topology.size();
  row.num_nodes = topology.num_nodes();
  row.up_to_bytes = row.priced_bytes = bytes;
  row.algorithm = Algorithm::Auto;
  for (Algorithm algorithm : algorithms) {
    query.algorithm = algorithm;
    const double seconds = predict_seconds(query, profile, kMaxSlices).seconds;
    if (row.algorithm == Algorithm::Auto || seconds < row.seconds) {
      row.runner_up = row.algorithm;
      row.runner_up_seconds = row.seconds;
      row.algorithm = algorithm;
      row.seconds = seconds;
    } else if (row.runner_up == Algorithm::Auto || seconds < row.runner_up_seconds) {
      row.runner_up = algorithm;
      row.runner_up_seconds = seconds;
    }
  }
  return row;
}

std::vector<Algorithm> candidates_for(Primitive primitive, const Topology& topology,
                                      const std::vector<Algorithm>& candidates) {
  std::vector<Algorithm> algorithms = algorithms_of(primitive, &topology);
  if (!candidates.empty()) {
    std::erase_if(algorithms, [&](Algorithm algorithm) {
      return std::find(candidates.begin(), candidates.end(), algorithm) == candidates.end();
    });
  }
  SIXFOLD_CHECK(!algorithms.empty(), "no candidate exists for " + std::string(primitive_name(primitive)));
  return algorithms;
}

}  // namespace

SelectTable make_select_table(const Profile& profile, const Topology& topology, const LinkShape& links,
                              const std::vector<Algorithm>& candidates) {
  SelectTable table;
  for (Primitive primitive : kCollectives) {
    const std::vector<Algorithm> algorithms = candidates_for(primitive, topology, candidates);
    for (size_t bytes = kSmallestPricedBytes; bytes <= kLargestPricedBytes; bytes *= 2) {
      const SelectRow row = best_row(primitive, bytes, profile, topology, links, algorithms);
      const bool goes_on = bytes > kSmallestPricedBytes && table.rows.back().algorithm == row.algorithm;
      if (goes_on) {
        table.rows.back() = row;
      } else {
        table.rows.push_back(row);
      }
    }
    table.rows.back().up_to_bytes = kAnyBytes;
  }
  check_select_table(table);
  return table;
}

}  // namespace sixfold::comm
