// Topology: which ranks of a group share a node. Pure data: found by host names or given by the user, read by builders,
// by the simulator and by the choice of algorithms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sixfold::comm {

/// Intra: within a node (NVLink, shared memory). Inter: between nodes (InfiniBand, Ethernet).
enum class LinkClass : uint8_t { Intra, Inter };
std::string_view link_class_name(LinkClass link_class);

class Topology {
 public:
  /// node_of[rank]: any numbers, equal for ranks of one node. Nodes are renumbered 0, 1, ... in the order in which
  /// ranks come upon them.
  explicit Topology(const std::vector<int>& node_of);
  static Topology one_node(int size);
  /// "2x4": two nodes of four ranks each, node by node. Throws ConfigError when `text` is no such thing or the product
  /// is not `size`.
  static Topology parse(std::string_view text, int size);
  /// By the name of each rank's host.
  static Topology of_hosts(const std::vector<std::string>& hosts);
  /// Of the group whose rank i is rank members[i] here.
  Topology group(const std::vector<int>& members) const;

  int size() const { return static_cast<int>(node_of_.size()); }
  int num_nodes() const { return static_cast<int>(ranks_.size()); }
  bool spans_nodes() const { return num_nodes() > 1; }
  int node_of(int rank) const { return node_of_.at(static_cast<size_t>(rank)); }
  /// In ascending order.
  const std::vector<int>& ranks_of(int node) const { return ranks_.at(static_cast<size_t>(node)); }
  /// Place of `rank` among the ranks of its node: the rail that it is on.
  int rail_of(int rank) const { return rail_of_.at(static_cast<size_t>(rank)); }
  /// 0 where nodes differ in their number of ranks; then there are no rails, and no hierarchical algorithm.
  int ranks_per_node() const { return ranks_per_node_; }
  LinkClass link(int a, int b) const { return node_of(a) == node_of(b) ? LinkClass::Intra : LinkClass::Inter; }

  /// All ranks, node by node: a ring in this order crosses each node's boundary once in each direction.
  const std::vector<int>& ring_order() const { return ring_order_; }
  /// Place of `rank` in ring_order().
  int ring_position(int rank) const { return ring_position_.at(static_cast<size_t>(rank)); }

  /// "2 nodes: 0 1 2 3 | 4 5 6 7"
  std::string to_string() const;

 private:
  std::vector<int> node_of_, rail_of_, ring_order_, ring_position_;
  std::vector<std::vector<int>> ranks_;
  int ranks_per_node_ = 0;
};

}  // namespace sixfold::comm
