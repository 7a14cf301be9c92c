// What the formulas are written in. Only closed_form*.cpp include this.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/comm/schedule/closed_form.h"

namespace sixfold::comm {

/// Passes of one kind.
struct PassGroup {
  double passes = 0;
  double message = 0;  // bytes of the largest message of a step
};

/// Names are short because formulas are long: a, seconds of latency; w, seconds to carry a byte; g, seconds to add one.
struct Terms {
  Terms(const CostQuery& query, const Profile& profile)
      : primitive(query.primitive),
        num_nodes(query.num_nodes),
        per_node(query.ranks_per_node),
        size(query.size()),
        sharers(std::ceil(static_cast<double>(query.ranks_per_node) / profile.num_rails)),
        num_rails(profile.num_rails),
        num_slots(query.links.num_slots),
        count(query.count),
        element_bytes(query.element_bytes),
        slot_elements(query.links.slot_bytes / query.element_bytes),
        a_intra(profile.intra.alpha_s),
        a_inter(profile.inter.alpha_s),
        w_intra(1 / profile.intra.bytes_per_s),
        w_inter(1 / profile.inter.bytes_per_s),
        g(1 / profile.reduce_bytes_per_s) {}

  bool crosses() const { return num_nodes > 1; }
  double slot() const { return static_cast<double>(slot_elements * element_bytes); }
  /// Of a message: the bytes of its first slice, of its last one, and the number of its slices.
  double first_slice(double message) const { return std::min(message, slot()); }
  double num_slices(double message) const { return std::ceil(message / slot()); }
  double last_slice(double message) const { return message - (num_slices(message) - 1) * slot(); }

  /// The passes of a buffer of which a step moves one of `parts` parts: full ones, and a last one that is not.
  std::vector<PassGroup> pass_groups(size_t parts) const {
    const size_t full = (static_cast<size_t>(num_slots) - 1) * slot_elements * parts, rest = count % full;
    const auto bytes = [&](size_t elements) {
      return static_cast<double>((elements + parts - 1) / parts * element_bytes);
    };
    std::vector<PassGroup> groups;
    if (count >= full) groups.push_back({static_cast<double>(count / full), bytes(full)});
    if (rest > 0) groups.push_back({1, bytes(rest)});
    return groups;
  }

  Primitive primitive;
  int num_nodes, per_node, size;
  double sharers;  // ranks of a node that share a network card
  int num_rails, num_slots;
  size_t count, element_bytes, slot_elements;
  double a_intra, a_inter, w_intra, w_inter, g;
};

// One function an algorithm; the primitive is among the terms.
double ring_seconds(const Terms& terms);
double chain_seconds(const Terms& terms);
double tree_seconds(const Terms& terms);
double binomial_seconds(const Terms& terms);
double double_tree_seconds(const Terms& terms);
double direct_seconds(const Terms& terms);
double pairwise_seconds(const Terms& terms);
double spread_out_seconds(const Terms& terms);
double recursive_doubling_seconds(const Terms& terms);
double halving_doubling_seconds(const Terms& terms);
double hierarchical_seconds(const Terms& terms);
double hierarchical_exchange_seconds(const Terms& terms);
double hierarchical_tree_seconds(const Terms& terms);

}  // namespace sixfold::comm
