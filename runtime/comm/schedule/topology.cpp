#include "runtime/comm/schedule/topology.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "runtime/core/error.h"

namespace sixfold::comm {

std::string_view link_class_name(LinkClass link_class) {
  return link_class == LinkClass::Intra ? "intra" : "inter";
}

Topology::Topology(const std::vector<int>& node_of) {
  SIXFOLD_CHECK(!node_of.empty(), "a topology has at least one rank");
  std::map<int, int> known;  // the caller's number of a node -> ours
  for (int rank = 0; rank < static_cast<int>(node_of.size()); ++rank) {
    const int node =
        known.try_emplace(node_of[static_cast<size_t>(rank)], static_cast<int>(known.size())).first->second;
    if (node == num_nodes()) ranks_.emplace_back();
    std::vector<int>& mates = ranks_[static_cast<size_t>(node)];
    node_of_.push_back(node);
    rail_of_.push_back(static_cast<int>(mates.size()));
    mates.push_back(rank);
  }
  ring_position_.resize(node_of.size());
  for (const std::vector<int>& mates : ranks_) {
    for (int rank : mates) {
      ring_position_[static_cast<size_t>(rank)] = static_cast<int>(ring_order_.size());
      ring_order_.push_back(rank);
    }
  }
  const bool alike = std::all_of(ranks_.begin(), ranks_.end(),
                                 [&](const std::vector<int>& mates) { return mates.size() == ranks_[0].size(); });
  ranks_per_node_ = alike ? static_cast<int>(ranks_[0].size()) : 0;
}

Topology Topology::one_node(int size) {
  return Topology(std::vector<int>(static_cast<size_t>(size), 0));
}

Topology Topology::parse(std::string_view text, int size) {
  int nodes = 0, per_node = 0;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, nodes);
  bool right = first.ec == std::errc() && first.ptr != end && *first.ptr == 'x';
  if (right) {
    const auto second = std::from_chars(first.ptr + 1, end, per_node);
    right = second.ec == std::errc() && second.ptr == end && nodes > 0 && per_node > 0 &&
            static_cast<int64_t>(nodes) * per_node == size;
  }
  if (!right) {
    std::string allowed;
    for (int n = 1; n <= size; ++n) {
      if (size % n == 0) allowed += (n == 1 ? "" : ", ") + std::to_string(n) + "x" + std::to_string(size / n);
    }
    throw ConfigError("--topology " + std::string(text) + ": nodes x ranks per node; allowed for " +
                      std::to_string(size) + " ranks are " + allowed);
  }
  std::vector<int> node_of;
  for (int rank = 0; rank < size; ++rank) node_of.push_back(rank / per_node);
  return Topology(node_of);
}

Topology Topology::of_hosts(const std::vector<std::string>& hosts) {
  std::map<std::string, int> numbers;
  std::vector<int> node_of;
  for (const std::string& host : hosts) {
    node_of.push_back(numbers.try_emplace(host, static_cast<int>(numbers.size())).first->second);
  }
  return Topology(node_of);
}

Topology Topology::group(const std::vector<int>& members) const {
  std::vector<int> nodes;
  for (int member : members) nodes.push_back(node_of(member));
  return Topology(nodes);
}

std::string Topology::to_string() const {
  std::string text = std::to_string(num_nodes()) + (num_nodes() == 1 ? " node:" : " nodes:");
  for (size_t node = 0; node < ranks_.size(); ++node) {
    if (node > 0) text += " |";
    for (int rank : ranks_[node]) text += " " + std::to_string(rank);
  }
  return text;
}

}  // namespace sixfold::comm
