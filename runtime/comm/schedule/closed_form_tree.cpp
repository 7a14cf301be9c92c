// Closed forms of trees, by a walk over their ranks: O(N), no events. B, bytes of a pass (a message: every edge carries
// the whole buffer); b, of its first slice; w, seconds to carry a byte; g, to add one; S, bytes of the buffer.
//
//   Broadcast   a rank sends to its first child slice by slice as it receives, to the others the whole pass after that:
//               child i has its first slice i B w + alpha + b w after its parent
//   Reduce      a rank adds its children's passes in order and sends with the last of them; its ingress takes one pass
//               after the other, in the order in which they come
//   first pass  along the longest path, then (B - b) w until its last slice; later passes follow at the pace of the
//               busiest port: of a rank inside its node, children S w; of a node's card, what its ranks send to others,
//               or what they get; or of W slices per round trip of a link
//   AllReduce   (tree) up and down side by side: both paths, and the ports carry both
//   double tree two trees that carry S/2 each, side by side, through the same ports
//   hierarchical (Broadcast, Reduce) a chain through the first ranks of all nodes, and from each one through its node
//
// Over several nodes the flows of a tree meet in the cards in no regular order: an estimate.
#include <bit>
#include <functional>

#include "runtime/comm/schedule/closed_form_terms.h"

namespace sixfold::comm {

namespace {

/// One or two rooted trees over ranks 0 .. size - 1. A vertex is a rank in a tree: rank + size * tree.
struct Forest {
  Forest(int num_ranks, int trees) : size(num_ranks), children(static_cast<size_t>(num_ranks * trees)) {}
  void connect(int parent, int child) { children[static_cast<size_t>(parent)].push_back(child); }
  int rank(int vertex) const { return vertex % size; }

  /// From the roots down, parents before children, trees side by side. Vertices that no root leads to are not in it.
  std::vector<int> order() const {
    std::vector<int> vertices = roots;
    for (size_t i = 0; i < vertices.size(); ++i) {
      const std::vector<int>& next = children[static_cast<size_t>(vertices[i])];
      vertices.insert(vertices.end(), next.begin(), next.end());
    }
    return vertices;
  }

  int size;
  std::vector<int> roots;
  std::vector<std::vector<int>> children;  // in the order in which a Broadcast serves them
};

Forest heap_tree(int size) {
  Forest tree(size, 1);
  tree.roots = {0};
  for (int rank = 1; rank < size; ++rank) tree.connect((rank - 1) / 2, rank);
  return tree;
}

/// The largest subtree first.
Forest binomial_tree(int size) {
  Forest tree(size, 1);
  tree.roots = {0};
  for (int rank = 0; rank < size; ++rank) {
    int bit = 1;
    while ((rank & bit) == 0 && rank + bit < size) bit *= 2;
    for (bit /= 2; bit > 0; bit /= 2) tree.connect(rank, rank + bit);
  }
  return tree;
}

/// A chain through the first ranks of all nodes, and one through each node.
Forest chains(int num_nodes, int per_node) {
  Forest tree(num_nodes * per_node, 1);
  tree.roots = {0};
  for (int rank = 0; rank < tree.size; ++rank) {
    if (rank % per_node == 0 && rank + per_node < tree.size) tree.connect(rank, rank + per_node);
    if (rank % per_node + 1 < per_node) tree.connect(rank, rank + 1);
  }
  return tree;
}

/// Connects positions begin .. end in order (left subtree < top < right subtree), every left subtree full; `vertex`
/// maps positions. Returns the top.
int connect_in_order(Forest& forest, int begin, int end, const std::function<int(int)>& vertex) {
  const int top = begin - 1 + static_cast<int>(std::bit_floor(static_cast<unsigned>(end - begin + 1)));
  if (begin < top) forest.connect(vertex(top), vertex(connect_in_order(forest, begin, top - 1, vertex)));
  if (top < end) forest.connect(vertex(top), vertex(connect_in_order(forest, top + 1, end, vertex)));
  return top;
}

/// Two trees, mirrored or moved on by one, such that no rank has children in both. `below_root`: over all ranks but 0,
/// which is above the tops of both.
Forest double_tree(int size, bool below_root) {
  Forest forest(size, 2);
  const int n = below_root ? size - 1 : size, first = below_root ? 1 : 0;
  for (int tree = 0; tree < 2; ++tree) {
    const auto vertex = [=](int position) {
      const int moved = n % 2 == 0 ? n + 1 - position : position % n + 1;
      return tree * size + first + (tree == 0 ? position : moved) - 1;
    };
    const int top = vertex(connect_in_order(forest, 1, n, vertex));
    if (below_root) forest.connect(tree * size, top);
    forest.roots.push_back(below_root ? tree * size : top);
  }
  return forest;
}

class TreeWalk {
 public:
  TreeWalk(const Terms& terms, const Forest& forest) : t_(terms), forest_(forest), order_(forest.order()) {}

  /// Until the last rank has the last slice of a pass of `message` bytes.
  double down(double message) {
    reset();
    const double first = t_.first_slice(message);
    std::vector<double> ready(forest_.children.size(), 0);  // has the first slice
    double last = 0;
    for (int rank : order_) {
      for (int child : forest_.children[at(rank)]) {
        const double w = crosses(rank, child) ? t_.w_inter : t_.w_intra;
        ready[at(child)] = pass_through(rank, child, ready[at(rank)], message) + first * w;
        last = std::max(last, ready[at(child)] + (message - first) * w);
      }
    }
    return last;
  }

  /// Until rank 0 has added the last slice of a pass of `message` bytes. Children are added in `in_order`, or the other
  /// way round.
  double up(double message, bool in_order) {
    reset();
    const double first = t_.first_slice(message), rest = message - first;
    std::vector<double> leaves(forest_.children.size(), 0);  // when the first slice of its sum leaves a rank
    double last = 0;
    for (size_t i = order_.size(); i-- > 0;) {
      const int rank = order_[i];
      std::vector<int> children = forest_.children[at(rank)];
      if (!in_order) std::reverse(children.begin(), children.end());
      std::vector<int> by_time = children;
      std::stable_sort(by_time.begin(), by_time.end(), [&](int a, int b) { return leaves[at(a)] < leaves[at(b)]; });
      for (int child : by_time) leaves[at(child)] = pass_through(child, rank, leaves[at(child)], message);
      double end = 0;
      for (int child : children) {
        const double w = crosses(rank, child) ? t_.w_inter : t_.w_intra;
        leaves[at(rank)] = std::max(leaves[at(child)] + first * w, end) + first * t_.g;
        end = leaves[at(rank)] + rest * std::max(w, t_.g);
      }
      last = std::max(last, end);
    }
    return last;
  }

  /// Seconds per byte of a tree in the busiest port or compute, where the trees are used upwards (downwards).
  double pace(bool ups, bool downs) const {
    // What ranks, and cards, send downwards and receive upwards; and the other way round.
    std::vector<double> rank_below(at(forest_.size), 0), rank_above(rank_below), added(rank_below);
    std::vector<double> card_below(at(t_.num_nodes * t_.num_rails), 0), card_above(card_below);
    for (int vertex : order_) {
      for (int child : forest_.children[at(vertex)]) {
        const bool inter = crosses(vertex, child);
        const int parent_rank = forest_.rank(vertex), child_rank = forest_.rank(child);
        ++(inter ? card_below[card(vertex)] : rank_below[at(parent_rank)]);
        ++(inter ? card_above[card(child)] : rank_above[at(child_rank)]);
        ++added[at(parent_rank)];
      }
    }
    double busiest = credits(ups);
    const auto consider = [&](double below, double above, double seconds_per_byte) {
      busiest = std::max(busiest, (ups && downs ? below + above : std::max(below, above)) * seconds_per_byte);
    };
    for (size_t rank = 0; rank < added.size(); ++rank) {
      consider(rank_below[rank], rank_above[rank], t_.w_intra);
      if (ups) busiest = std::max(busiest, added[rank] * t_.g);
    }
    for (size_t i = 0; i < card_below.size(); ++i) consider(card_below[i], card_above[i], t_.w_inter);
    return busiest;
  }

 private:
  static size_t at(int index) { return static_cast<size_t>(index); }
  int node(int vertex) const { return forest_.rank(vertex) / t_.per_node; }
  bool crosses(int a, int b) const { return node(a) != node(b); }
  size_t card(int vertex) const {
    return at(node(vertex) * t_.num_rails + forest_.rank(vertex) % t_.per_node % t_.num_rails);
  }

  /// All ports are free.
  void reset() {
    rank_ports_.assign(at(forest_.size), {});
    card_ports_.assign(at(t_.num_nodes * t_.num_rails), {});
  }

  /// Sends a pass that is ready at `ready`; when its first byte begins to come in.
  double pass_through(int from, int to, double ready, double message) {
    const bool inter = crosses(from, to);
    double& egress = inter ? card_ports_[card(from)].egress_free : rank_ports_[at(forest_.rank(from))].egress_free;
    double& ingress = inter ? card_ports_[card(to)].ingress_free : rank_ports_[at(forest_.rank(to))].ingress_free;
    const double duration = message * (inter ? t_.w_inter : t_.w_intra);
    const double leaves = std::max(ready, egress);
    egress = leaves + duration;
    const double enters = std::max(leaves + (inter ? t_.a_inter : t_.a_intra), ingress);
    ingress = enters + duration;
    return enters;
  }

  /// Seconds per byte that the slots of the slowest link allow.
  double credits(bool adding) const {
    const double slot = t_.slot(), g = adding ? t_.g : 0;
    const double inside = t_.per_node > 1 ? t_.a_intra + slot * (t_.w_intra + g) : 0;
    const double between = t_.crosses() ? t_.a_inter + slot * (t_.w_inter + g) : 0;
    return std::max(inside, between) / (t_.num_slots * slot);
  }

  struct Ports {
    double egress_free = 0, ingress_free = 0;
  };
  const Terms& t_;
  const Forest& forest_;
  const std::vector<int> order_;
  std::vector<Ports> rank_ports_;  // inside the node
  std::vector<Ports> card_ports_;
};

/// The last pass, or the one before it and what follows that; `of_pass` prices one, `pace` the bytes before them.
double pipelined(const Terms& t, double bytes, double pace, const std::function<double(double)>& of_pass) {
  const double full = (t.num_slots - 1) * t.slot();
  if (bytes <= full) return of_pass(bytes);
  const double rest = std::fmod(bytes, full), last = rest > 0 ? rest : full;
  const double by_last = (bytes - last) * pace + of_pass(last);
  return std::max(by_last, (bytes - full) * pace + of_pass(full));
}

double one_way_or_both(const Terms& t, const Forest& forest, double bytes, bool adds_in_order) {
  TreeWalk walk(t, forest);
  const bool up = t.primitive != Primitive::Broadcast, down = t.primitive != Primitive::Reduce;
  return pipelined(t, bytes, walk.pace(up, down), [&](double message) {
    double seconds = 0;
    if (up) seconds += walk.up(message, adds_in_order);
    if (down) seconds += walk.down(message);
    // Going down begins when the first slice is up.
    const double w = std::max(t.per_node > 1 ? t.w_intra : 0, t.crosses() ? t.w_inter : 0);
    if (up && down) seconds -= (message - t.first_slice(message)) * std::max(w, t.g);
    return seconds;
  });
}

}  // namespace

double tree_seconds(const Terms& t) {
  return one_way_or_both(t, heap_tree(t.size), static_cast<double>(t.count * t.element_bytes), true);
}

double binomial_seconds(const Terms& t) {
  return one_way_or_both(t, binomial_tree(t.size), static_cast<double>(t.count * t.element_bytes), false);
}

double double_tree_seconds(const Terms& t) {
  const double half = static_cast<double>((t.count + 1) / 2 * t.element_bytes);
  return one_way_or_both(t, double_tree(t.size, t.primitive != Primitive::AllReduce), half, true);
}

double hierarchical_tree_seconds(const Terms& t) {
  const double bytes = static_cast<double>(t.count * t.element_bytes);
  return one_way_or_both(t, chains(t.num_nodes, t.per_node), bytes, true);
}

}  // namespace sixfold::comm
