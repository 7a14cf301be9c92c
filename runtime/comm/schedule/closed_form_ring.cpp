// Closed forms of the ring and of the chain. B, bytes of a message (S/N for AllReduce in one pass); b, of its first
// slice; x = b w and g, seconds to carry and to add b; K, slices of a message; W, slots of a link.
//
// Ring on one node, or on nodes of one rank. All ranks do the same at the same time. A step follows the one before when
// its first slice has made its hop, when the port has carried all slices of the step before, or when the compute has
// added them:
//
//   adding step   max(alpha + x + g, B w, B g)      passing step   max(alpha + x, time between first and last slice +
//   x) AllReduce     (N-1) adding steps, (N-2) passing steps, and the last message arrives
//
// which for one slice is 2(N-1)(alpha + x) + (N-1) g, and for long messages 2(N-1) B w + alpha. A rank begins a pass
// when it has received all of the one before, and since all do so at once passes add up.
//
// Ring over M nodes of n > 1 ranks. One hop in n goes between nodes and has the node's card for itself, in each
// direction. Three cycles compete, each with its own time per step, and the slowest sets the pace:
//
//   hops     around the ring: (hop between nodes + (n-1) hops inside) / n
//   port     of a rank before a boundary: B / beta between nodes (or B g of any rank's compute)
//   credits  a slot is free again once the receiver has used it: K slices of W per alpha + x (+ g) between nodes
//
// Chain (Broadcast, Reduce): the first slice makes N - 1 hops, M - 1 or M of them between nodes; the others follow at
// the pace of the slowest port, of the compute, or of W slices per alpha + x (+ g).
#include "runtime/comm/schedule/closed_form_terms.h"

namespace sixfold::comm {

namespace {

bool adds(const Terms& t) {
  return t.primitive == Primitive::AllReduce || t.primitive == Primitive::ReduceScatter;
}
bool passes_on(const Terms& t) {
  return t.primitive == Primitive::AllReduce || t.primitive == Primitive::AllGather;
}

/// One pass where all links are alike.
double uniform_pass(const Terms& t, double message) {
  const double n = t.size, a = t.crosses() ? t.a_inter : t.a_intra, w = t.crosses() ? t.w_inter : t.w_intra;
  const double first = t.first_slice(message), x = first * w, g = first * t.g;
  const double adding_step = std::max({a + x + g, message * w, message * t.g});
  if (!passes_on(t)) {
    return (n - 2) * adding_step + a + std::max(x + message * t.g, message * w + t.last_slice(message) * t.g);
  }
  // From first to last slice of a message, as it comes out of the additions and as a busy port sends it on.
  const double packed = (message - first) * w, spread = (message - first) * (adds(t) ? std::max(w, t.g) : w);
  const double added = adds(t) ? std::max(a + x + g, message * w) + (n - 2) * adding_step : 0;
  const bool stays_spread = n == 2 || spread <= a;
  const double passed_on = n == 2 ? 0 : std::max(a, spread) + x + (n - 3) * std::max(a + x, message * w);
  return added + passed_on + a + x + (stays_spread ? spread : packed);
}

/// Steps of one kind over several nodes: what a step costs in each of the cycles.
struct Phase {
  double steps;
  double inter, intra;     // a hop of a first slice
  double port;             // a whole message
  double steps_per_slots;  // steps in which all slots of a link are used once, which takes one hop between nodes
};

Phase phase_of(const Terms& t, const PassGroup& group, bool adding) {
  const double first = t.first_slice(group.message), g = adding ? t.g : 0;
  return {.steps = group.passes * (t.size - 1),
          .inter = t.a_inter + first * (t.w_inter + g),
          .intra = t.a_intra + first * (t.w_intra + g),
          .port = group.message * std::max({t.w_inter, t.w_intra, g}),
          .steps_per_slots = t.num_slots / t.num_slices(group.message)};
}

/// The longest way through the steps of `phase`: some wait for credits, some for the port, the rest of them and
/// `walked` more that came before hop around the ring, from a boundary on. Returns seconds, less those of the walked
/// ones' additions.
double longest_way(const Terms& t, const Phase& phase, double walked) {
  // Whether one cycle is better than another depends on nothing but where the walk ends, so that a full round of ways
  // to begin and to end is enough.
  constexpr double kRound = 64;
  const double round = std::min<double>(t.per_node, kRound);
  const auto try_counts = [round](double most, const auto& use) {
    for (double count = 0; count <= std::min(most, round); ++count) use(count);
    for (double count = std::max(round + 1, most - round); count <= most; ++count) use(count);
  };
  double longest = 0;
  // The last step is a hop in any case.
  try_counts(std::floor((phase.steps - 1) / phase.steps_per_slots), [&](double cycles) {
    const double after_credits = phase.steps - cycles * phase.steps_per_slots;
    try_counts(std::floor(after_credits) - 1, [&](double waits) {
      const double hops = std::floor(after_credits - waits + walked), crossing = std::ceil(hops / t.per_node);
      const double seconds =
          cycles * phase.inter + waits * phase.port + crossing * phase.inter + (hops - crossing) * phase.intra;
      longest = std::max(longest, seconds);
    });
  });
  return longest;
}

double several_nodes(const Terms& t) {
  double seconds = 0;
  for (const PassGroup& group : t.pass_groups(t.primitive == Primitive::AllReduce ? static_cast<size_t>(t.size) : 1)) {
    const Phase last = phase_of(t, group, !passes_on(t));
    double longest = longest_way(t, last, 0);
    if (adds(t) && passes_on(t)) {
      // The adding phase before: all of it by one cycle, a walk going on into the passing phase.
      const Phase adding = phase_of(t, group, true);
      const double additions = adding.steps * t.first_slice(group.message) * t.g;
      const double not_walked = adding.steps * std::max(adding.port, adding.inter / adding.steps_per_slots);
      longest = std::max(longest + not_walked, longest_way(t, last, adding.steps) + additions);
    }
    // A pass ends with the last slice of a message, a walk with the first; a port that is never idle ends once.
    const double walk = last.steps * (last.inter + (t.per_node - 1) * last.intra) / t.per_node;
    const bool walks = walk > last.steps * std::max(last.port, last.inter / last.steps_per_slots);
    seconds += longest + (walks ? group.passes : 1) * (group.message - t.first_slice(group.message)) *
                             std::max(t.w_inter, t.w_intra);
  }
  return seconds;
}

}  // namespace

double ring_seconds(const Terms& t) {
  if (t.crosses() && t.per_node > 1) return several_nodes(t);
  double seconds = 0;
  for (const PassGroup& group : t.pass_groups(t.primitive == Primitive::AllReduce ? static_cast<size_t>(t.size) : 1)) {
    seconds += group.passes * uniform_pass(t, group.message);
  }
  return seconds;
}

double chain_seconds(const Terms& t) {
  const double bytes = static_cast<double>(t.count * t.element_bytes), first = t.first_slice(bytes);
  const double g = t.primitive == Primitive::Reduce ? t.g : 0;
  const double inter = t.a_inter + first * (t.w_inter + g), intra = t.a_intra + first * (t.w_intra + g);
  // A Reduce to rank 0 begins at rank 1 and goes around, so that it enters the first node again.
  const bool comes_back = t.primitive == Primitive::Reduce && t.crosses() && t.per_node > 1;
  const double inter_hops = t.num_nodes - (comes_back ? 0 : 1), intra_hops = t.size - 1 - inter_hops;
  const double w = std::max({inter_hops > 0 ? t.w_inter : 0, intra_hops > 0 ? t.w_intra : 0, g});
  const double slowest_hop = std::max(inter_hops > 0 ? inter : 0, intra_hops > 0 ? intra : 0);
  const double later = t.num_slices(bytes) - 1;  // slices after the first
  const double windows = std::floor(later / t.num_slots);
  const double by_credits = windows * slowest_hop + (later - windows * t.num_slots) * t.last_slice(bytes) * w;
  return inter_hops * inter + intra_hops * intra + std::max((bytes - first) * w, by_credits);
}

}  // namespace sixfold::comm
