// Closed forms of the algorithms in which ranks exchange messages with many others. B, bytes of a message in one pass;
// w, seconds to carry a byte; g, to add one; c, ranks that share a network card.
//
// All to all (direct, spread_out): every rank has N - 1 messages ready at once, so ports are never idle.
//
//   one node        alpha + (N-1) B w
//   several         a node sends n (N-n) messages to others, all through its cards, each of which carries c (N-n) of
//                   them: alpha + c (N-n) B w between nodes, or alpha + (n-1) B w inside, whichever is longer. 2 x 4
//                   with one card: 16 messages. All nodes send to the same number of nodes before and after them at any
//                   time, so cards that receive are as busy as those that send
//   additions       direct adds in rank order, so the rank whose first contribution comes last adds all others after
//                   it: rank 0 waits for rank 1, N-1 additions; over several nodes the last rank of the first node
//                   waits for the first one of the second, N-n additions
//   AllReduce       two shots: additions included, then all to all again. One shot: B = S
//   Broadcast       the root's messages only: (N-1) S w inside, (N-n) S w through its card
//   Reduce          the same at the root's ingress, and an addition after the last arrival; or, where additions are
//                   slower, (N-1) S g after the first one
//
// pairwise: rounds, in each of which a rank waits for its message: (N-1)(alpha + B w) on one node. Over several, in the
// round of distance d min(d, n, N-d) ranks of a node send to another one. Ranks are not in step, so this is an
// estimate.
//
// recursive doubling, halving-doubling: N = 2^k: a round of distance d moves its message between d-th neighbours, all
// ranks of a node between nodes where d >= n. Other N: before, a surplus rank hands S (a block, for AllGather) to its
// neighbour; after, it gets the result: an estimate.
//
// hierarchical: n-1 rounds inside the node, 2(M-1) along the rails, n-1 inside the node (AllReduce); M(n-1) inside and
// M-1 along the rails (ReduceScatter, AllGather); the same with n blocks in a message along the rails (AllToAll; where
// the links hold that many, else in several messages).
//
// Ranks that share a card take their turns once: those who went first are ahead in the next round as well. So rounds
// take either alpha + B w each, and (c-1) B w once, or c B w each where that keeps the card busy.
//
// Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005, sections
// 3 and 4.
#include <bit>

#include "runtime/comm/schedule/closed_form_terms.h"

namespace sixfold::comm {

namespace {

/// N - 1 messages of `message` bytes from every rank, but for the backlog.
double all_to_all(const Terms& t, double message) {
  if (!t.crosses()) return t.a_intra + (t.size - 1) * message * t.w_intra;
  const double inside = t.per_node > 1 ? t.a_intra + (t.per_node - 1) * message * t.w_intra : 0;
  return std::max(inside, t.a_inter + t.sharers * (t.size - t.per_node) * message * t.w_inter);
}

/// What is left at the last receiver's card when the senders' are done. The next pass goes on meanwhile.
double backlog(const Terms& t, size_t parts) {
  if (!t.crosses()) return 0;
  const double message = t.pass_groups(parts).front().message, inside = (t.per_node - 1) * message * t.w_intra;
  const double across = t.sharers * (t.size - t.per_node) * message * t.w_inter;
  return across > inside ? (t.per_node - t.sharers) * message * t.w_inter : 0;
}

/// The same with additions. For three ranks or more.
double all_to_all_adding(const Terms& t, double message) {
  const double additions = t.crosses() ? t.size - t.per_node : t.size - 1;
  return all_to_all(t, message) + additions * message * t.g;
}

/// How much earlier the second shot of an AllReduce begins to use the cards than the last rank is done with the first:
/// the first rank of a node has its last message n(n-1)/2 messages before the node has, and the card goes on with what
/// that rank sends.
double head_start(const Terms& t, double message) {
  if (!t.crosses()) return 0;
  const double gap = t.a_inter + (t.size - t.per_node) * message * t.g;
  return std::min(gap, (t.per_node - 1) / 2.0 * t.sharers * message * t.w_inter);
}

/// Rank 0 sends the buffer to, or gets it from, each other rank. Passes follow on one another.
double root_and_all(const Terms& t, bool adding) {
  const double bytes = static_cast<double>(t.count * t.element_bytes), slice = t.first_slice(bytes);
  const double inside = (t.per_node - 1) * bytes * t.w_intra, across = (t.size - t.per_node) * bytes * t.w_inter;
  const bool card_is_last = t.crosses() && t.a_inter + across > t.a_intra + inside;
  const double a = card_is_last ? t.a_inter : t.a_intra, port = card_is_last ? across : inside;
  const double w = card_is_last ? t.w_inter : t.w_intra;
  // W slices of a link at a time.
  const double windows = std::floor((t.num_slices(bytes) - 1) / t.num_slots);
  const double credits = slice * w + windows * (a + slice * (w + (adding ? t.g : 0)));
  if (!adding) return a + std::max(port, credits);
  return a + std::max({port + slice * t.g, slice * w + (t.size - 1) * bytes * t.g, credits});
}

/// `times` rounds in which every rank sends a message of `message` bytes to one other rank, inside its node or not.
struct Round {
  double times = 1;
  bool inside = true;
  double message = 0;
  bool adding = false;
};

/// The rank that is `distance` away is in the same node, or in another one.
Round exchange(const Terms& t, double distance, double message, bool adding) {
  return {1, distance < t.per_node, message, adding};
}

/// Rounds one after another. Fused: a slice goes on in the next round as soon as it is there; else a round begins when
/// the one before has ended.
double in_rounds(const Terms& t, const std::vector<Round>& rounds, bool fused) {
  double alone = 0, last_alone = 0;     // as if each rank had a card of its own
  double largest = 0;                   // message between nodes
  double inside = 0, through_card = 0;  // the same where the card is never idle
  for (const Round& round : rounds) {
    const double a = round.inside ? t.a_intra : t.a_inter, w = round.inside ? t.w_intra : t.w_inter;
    const double g = round.adding ? t.g : 0, first = t.first_slice(round.message), last = t.last_slice(round.message);
    const double whole = a + std::max(first * w + round.message * g, round.message * w + last * g);
    const double step = fused ? std::max({a + first * (w + g), round.message * w, round.message * g}) : whole;
    alone += round.times * step;
    last_alone = whole - step;
    if (round.inside) {
      inside += round.times * step;
    } else {
      largest = std::max(largest, round.message);
      through_card += round.times * t.sharers * round.message * t.w_inter;
    }
  }
  const double skew = (t.sharers - 1) * largest * t.w_inter;
  return std::max(alone + last_alone + skew, inside + through_card + t.a_inter * (largest > 0 ? 1 : 0));
}

/// Ranks beyond the largest power of two.
int num_surplus(const Terms& t) {
  return t.size - static_cast<int>(std::bit_floor(static_cast<unsigned>(t.size)));
}

/// pairwise over several nodes. All nodes do the same, so one is enough: what its ranks send to others is what others
/// send to it.
class PairwiseNode {
 public:
  PairwiseNode(const Terms& terms, double message)
      : t_(terms), message_(message), ready_(at(terms.per_node), 0), card_free_(at(terms.num_rails), 0) {}

  /// All ranks send to the one `distance` after them, each as soon as it has received in the round before.
  void round(int distance) {
    std::vector<int> senders(ready_.size());
    for (size_t i = 0; i < senders.size(); ++i) senders[i] = static_cast<int>(i);
    std::stable_sort(senders.begin(), senders.end(), [&](int i, int j) { return ready_[at(i)] < ready_[at(j)]; });
    std::vector<double> next = ready_;
    for (int sender : senders) {
      const int receiver = (sender + distance) % t_.size;
      double& has_received = next[at(receiver % t_.per_node)];
      has_received = std::max(has_received, arrival(sender, receiver >= t_.per_node));
    }
    ready_ = next;
  }

  double seconds() const { return *std::max_element(ready_.begin(), ready_.end()); }

 private:
  static size_t at(int index) { return static_cast<size_t>(index); }

  double arrival(int sender, bool crosses) {
    const double ready = ready_[at(sender)];
    if (!crosses) return ready + t_.a_intra + message_ * t_.w_intra;
    double& free = card_free_[at(sender % t_.num_rails)];
    free = std::max(ready, free) + message_ * t_.w_inter;
    return free + t_.a_inter;
  }

  const Terms& t_;
  double message_;
  std::vector<double> ready_;      // by rank of the node
  std::vector<double> card_free_;  // by rail
};

template <typename OfPass>
double sum_over_passes(const Terms& t, size_t parts, const OfPass& seconds_of_pass) {
  double seconds = 0;
  for (const PassGroup& group : t.pass_groups(parts)) seconds += group.passes * seconds_of_pass(group.message);
  return seconds;
}

}  // namespace

double direct_seconds(const Terms& t) {
  if (t.primitive == Primitive::Broadcast || t.primitive == Primitive::Reduce) {
    if (t.size == 2) return chain_seconds(t);  // the same steps
    return root_and_all(t, t.primitive == Primitive::Reduce);
  }
  const bool one_shot = t.primitive == Primitive::AllReduce && is_one_shot(t.count, t.size);
  if (t.size == 2 && !one_shot) return ring_seconds(t);  // the same steps
  const size_t parts = t.primitive == Primitive::AllReduce && !one_shot ? static_cast<size_t>(t.size) : 1;
  return backlog(t, parts) + sum_over_passes(t, parts, [&](double message) {
           if (t.primitive == Primitive::AllGather) return all_to_all(t, message);
           const double added = all_to_all_adding(t, message);
           if (t.primitive == Primitive::ReduceScatter || one_shot) return added;
           return added + all_to_all(t, message) - head_start(t, message);
         });
}

double spread_out_seconds(const Terms& t) {
  return backlog(t, 1) + sum_over_passes(t, 1, [&](double message) { return all_to_all(t, message); });
}

double pairwise_seconds(const Terms& t) {
  return sum_over_passes(t, 1, [&](double message) {
    if (!t.crosses()) return (t.size - 1) * (t.a_intra + message * t.w_intra);
    PairwiseNode node(t, message);
    for (int distance = 1; distance < t.size; ++distance) node.round(distance);
    return node.seconds();
  });
}

double recursive_doubling_seconds(const Terms& t) {
  const bool adding = t.primitive == Primitive::AllReduce;
  return sum_over_passes(t, 1, [&](double message) {
    const int surplus = adding ? num_surplus(t) : 0, active = t.size - surplus;
    std::vector<Round> rounds, until_handed_back;
    double at_once = 0;
    if (surplus > 0) rounds.push_back(exchange(t, 1, message, true));
    until_handed_back = rounds;
    for (int distance = 1; distance < active; distance *= 2) {
      const double blocks = adding ? 1 : std::min(distance, t.size - distance);
      rounds.push_back(exchange(t, distance, blocks * message, adding));
      // A rank that folded waits for others only where they folded too; else it adds what is there, and sends.
      if (distance < surplus) {
        until_handed_back.push_back(rounds.back());
      } else {
        at_once += message * std::max(t.w_intra, t.g);
      }
    }
    if (surplus == 0) return in_rounds(t, rounds, adding);
    until_handed_back.push_back(exchange(t, 1, message, false));
    return std::max(in_rounds(t, rounds, true), in_rounds(t, until_handed_back, true) + at_once);
  });
}

double halving_doubling_seconds(const Terms& t) {
  const int active = t.size - num_surplus(t);
  const bool all_reduce = t.primitive == Primitive::AllReduce, fold = num_surplus(t) > 0;
  return sum_over_passes(t, all_reduce && !fold ? 2 : 1, [&](double message) {
    // Of the whole pass: in an AllReduce a message is the whole where ranks fold, else half of it.
    const double whole = all_reduce ? message * (fold ? 1 : 2) : message * t.size, block = whole / t.size;
    std::vector<Round> rounds;
    if (fold) {
      rounds.push_back(exchange(t, 1, t.primitive == Primitive::AllGather ? block : whole, reduces(t.primitive)));
    }
    for (int distance = 1; distance < active; distance *= 2) {
      const double part = whole * distance / active;
      if (t.primitive != Primitive::AllGather) rounds.push_back(exchange(t, distance, part, true));
      if (t.primitive != Primitive::ReduceScatter) rounds.push_back(exchange(t, distance, part, false));
    }
    if (fold) rounds.push_back(exchange(t, 1, t.primitive == Primitive::ReduceScatter ? block : whole, false));
    return in_rounds(t, rounds, false);
  });
}

double hierarchical_exchange_seconds(const Terms& t) {
  const double n = t.per_node, capacity = (t.num_slots - 1) * t.slot();
  const std::vector<PassGroup> groups = t.pass_groups(1);
  const bool one_pass = groups.size() == 1 && groups[0].passes == 1;
  return sum_over_passes(t, 1, [&](double message) {
    const double runs = one_pass ? std::ceil(n / std::floor(capacity / message)) : n;  // in which n blocks travel
    std::vector<Round> rounds;
    if (n > 1) rounds.push_back({(n - 1) * t.num_nodes, true, message, false});
    if (t.crosses()) rounds.push_back({(t.num_nodes - 1) * runs, false, n * message / runs, false});
    return in_rounds(t, rounds, false);
  });
}

double hierarchical_seconds(const Terms& t) {
  const double n = t.per_node, nodes = t.num_nodes;
  const bool all_reduce = t.primitive == Primitive::AllReduce;
  return sum_over_passes(t, all_reduce ? static_cast<size_t>(n > 1 ? n : nodes) : 1, [&](double message) {
    // Steps inside the node move a part of n of an AllReduce, else a block; they go once for each node there.
    const double rail_message = all_reduce && n > 1 ? message / nodes : message;
    const Round inside{(n - 1) * (all_reduce ? 1 : nodes), true, message, false}, rail{nodes - 1, false, rail_message};
    Round adding_inside = inside, adding_rail = rail;
    adding_inside.adding = adding_rail.adding = true;
    std::vector<Round> rounds;
    if (t.primitive != Primitive::AllGather) rounds = {adding_inside, adding_rail};
    if (t.primitive != Primitive::ReduceScatter) rounds.insert(rounds.end(), {rail, inside});
    std::erase_if(rounds, [](const Round& round) { return round.times == 0; });
    return in_rounds(t, rounds, true);
  });
}

}  // namespace sixfold::comm
