#include "runtime/comm/observe/predict.h"

#include <algorithm>
#include <bit>

#include "runtime/comm/schedule/topology.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

[[noreturn]] void no_formula(Primitive primitive, Algorithm algorithm) {
  throw CheckError("predicted_sent_elements: no algorithm '" + std::string(algorithm_name(algorithm)) + "' for " +
                   std::string(primitive_name(primitive)));
}

// ---- Trees ---------------------------------------------------------------------------------------------------------

/// Places from the root on, around the group.
int distance_from(int root, const Call& call) {
  return (call.rank - root + call.size) % call.size;
}

/// Children in a heap-ordered binary tree with `top` at its top.
int num_tree_children(const Call& call, int top) {
  return std::clamp(call.size - 1 - 2 * distance_from(top, call), 0, 2);
}

/// Children in a binomial tree: those at +1, +2, +4, ... below the lowest one bit of the place and below the end.
int num_binomial_children(const Call& call) {
  const int place = distance_from(call.root, call), behind = call.size - place;
  const int room = place == 0 ? behind : std::min(place & -place, behind);
  return std::bit_width(static_cast<unsigned>(room - 1));
}

/// Children in both of the two trees over places 1 .. n: in each, an even place has one before it, and one after it
/// unless it is the last.
int num_double_tree_children(int place, int n) {
  const int second = n % 2 == 0 ? n + 1 - place : (place == 1 ? n : place - 1);
  int children = 0;
  for (int role : {place, second}) children += role % 2 == 0 ? 1 + (role < n ? 1 : 0) : 0;
  return children;
}

/// Whom this rank passes a hierarchical Broadcast on to: the next node, where it is on the root's rail, and the next
/// rank of its node.
int num_successors_in_chains(const Call& call) {
  const Topology& t = *call.topology;
  const int nodes = t.num_nodes(), per_node = t.ranks_per_node();
  const int rail = (t.rail_of(call.rank) - t.rail_of(call.root) + per_node) % per_node;
  const int node = (t.node_of(call.rank) - t.node_of(call.root) + nodes) % nodes;
  return (rail == 0 && node + 1 < nodes ? 1 : 0) + (rail + 1 < per_node ? 1 : 0);
}

// ---- Powers of two -------------------------------------------------------------------------------------------------

/// N = P + surplus: odd ranks below 2 surplus take part through the rank before them.
struct PowerOfTwo {
  explicit PowerOfTwo(const Call& call)
      : active(static_cast<int>(std::bit_floor(static_cast<unsigned>(call.size)))),
        surplus(call.size - active),
        paired(call.rank < 2 * surplus),
        takes_part(!paired || call.rank % 2 == 0),
        number(paired ? call.rank / 2 : call.rank - surplus) {}
  int first_rank(int of_number) const { return of_number + std::min(of_number, surplus); }

  int active, surplus;
  bool paired, takes_part;
  int number;
};

// ---- Blocks --------------------------------------------------------------------------------------------------------

/// Elements of blocks [begin, end) of an AllGather or ReduceScatter, around the end of the group.
double blocks(const Call& call, int begin, int end) {
  if (call.counts == nullptr) return static_cast<double>(call.count) * (end - begin);
  double sum = 0;
  for (int b = begin; b < end; ++b) sum += static_cast<double>((*call.counts)[static_cast<size_t>(b % call.size)]);
  return sum;
}
double block(const Call& call, int index) {
  return blocks(call, index, index + 1);
}
double all_blocks(const Call& call) {
  return blocks(call, 0, call.size);
}

/// Halving sends the half of the other side each time, doubling one's own.
double sent_by_halving_doubling(const Call& call) {
  const PowerOfTwo power(call);
  const bool gathers = call.primitive == Primitive::AllGather;
  if (!power.takes_part) return gathers ? block(call, call.rank) : all_blocks(call);
  double sent = 0;
  for (int distance = 1; distance < power.active; distance *= 2) {
    const int first = (gathers ? power.number : power.number ^ distance) & ~(distance - 1);
    sent += blocks(call, power.first_rank(first), power.first_rank(first + distance));
  }
  if (!power.paired) return sent;
  const double surplus_block = block(call, call.rank + 1);
  return sent + (gathers ? all_blocks(call) - surplus_block : surplus_block);
}

double sent_by_recursive_doubling(const Call& call) {
  const bool power_of_two = std::has_single_bit(static_cast<unsigned>(call.size));
  double sent = 0;
  for (int known = 1; known < call.size; known *= 2) {
    const int first = power_of_two ? call.rank & ~(known - 1) : call.rank;
    sent += blocks(call, first, first + std::min(known, call.size - known));
  }
  return sent;
}

/// Rings along the rail and, for the blocks of each node, inside the node. A ring sends all blocks but one: this rank's
/// own when it reduces, the next rank's when it gathers.
double sent_by_hierarchical(const Call& call) {
  const Topology& t = *call.topology;
  const int step = call.primitive == Primitive::AllGather ? 1 : 0;
  const int kept_node = (t.node_of(call.rank) + step) % t.num_nodes();
  const int kept_rail = (t.rail_of(call.rank) + step) % t.ranks_per_node();
  double sent = 0;
  for (int rank = 0; rank < call.size; ++rank) {
    const bool along_rail = t.rail_of(rank) == t.rail_of(call.rank) && t.node_of(rank) != kept_node;
    sent += ((along_rail ? 1 : 0) + (t.rail_of(rank) != kept_rail ? 1 : 0)) * block(call, rank);
  }
  return sent;
}

int next_in_ring(const Call& call) {
  if (call.topology == nullptr) return (call.rank + 1) % call.size;
  const int position = call.topology->ring_position(call.rank);
  return call.topology->ring_order()[static_cast<size_t>((position + 1) % call.size)];
}

double sent_by_block_primitive(Algorithm algorithm, const Call& call) {
  const bool gathers = call.primitive == Primitive::AllGather;
  switch (algorithm) {
    case Algorithm::Ring:
      return all_blocks(call) - block(call, gathers ? next_in_ring(call) : call.rank);
    case Algorithm::Direct:
      return gathers ? (call.size - 1) * block(call, call.rank) : all_blocks(call) - block(call, call.rank);
    case Algorithm::RecursiveDoubling:
      return sent_by_recursive_doubling(call);
    case Algorithm::HalvingDoubling:
      return sent_by_halving_doubling(call);
    case Algorithm::Hierarchical:
      return sent_by_hierarchical(call);
    default:
      no_formula(call.primitive, algorithm);
  }
}

double sent_by_all_to_all(Algorithm algorithm, const Call& call) {
  if (algorithm == Algorithm::Hierarchical) {
    const int nodes = call.topology->num_nodes(), per_node = call.topology->ranks_per_node();
    return (nodes * (per_node - 1) + (nodes - 1) * per_node) * static_cast<double>(call.count);
  }
  if (call.counts == nullptr) return (call.size - 1) * static_cast<double>(call.count);
  double sent = 0;
  for (int peer = 0; peer < call.size; ++peer) {
    const auto count = (*call.counts)[static_cast<size_t>(call.rank * call.size + peer)];
    if (peer != call.rank) sent += static_cast<double>(count);
  }
  return sent;
}

// ---- Whole buffers -------------------------------------------------------------------------------------------------

double sent_by_broadcast(Algorithm algorithm, const Call& call, double full) {
  const int place = distance_from(call.root, call);
  switch (algorithm) {
    case Algorithm::Ring:
      return next_in_ring(call) == call.root ? 0 : full;
    case Algorithm::Tree:
      return num_tree_children(call, call.root) * full;
    case Algorithm::Binomial:
      return num_binomial_children(call) * full;
    case Algorithm::DoubleTree:
      return place == 0 ? full : num_double_tree_children(place, call.size - 1) * full / 2;
    case Algorithm::Direct:
      return place == 0 ? (call.size - 1) * full : 0;
    case Algorithm::Hierarchical:
      return num_successors_in_chains(call) * full;
    default:
      no_formula(call.primitive, algorithm);
  }
}

/// What `parts` ranks send of a buffer of which each has a part reduced and then gathered.
double twice_all_but_one_of(int parts, double full) {
  return 2.0 * (parts - 1) / parts * full;
}

double sent_by_powers_of_two(Algorithm algorithm, const Call& call, double full) {
  const PowerOfTwo power(call);
  if (!power.takes_part) return full;
  const double sent = algorithm == Algorithm::RecursiveDoubling
                          ? (std::bit_width(static_cast<unsigned>(power.active)) - 1) * full
                          : twice_all_but_one_of(power.active, full);
  return sent + (power.paired ? full : 0);
}

/// Elements of the part of the buffer that ends at `rank`, reduced, and is gathered from there.
double part(const Call& call, int rank) {
  return static_cast<double>(part_of(call.count, call.size, rank).count());
}

double sent_by_direct_all_reduce(const Call& call, double full) {
  if (full * call.size * call.size <= kOneShotCount) return (call.size - 1) * full;
  return full - part(call, call.rank) + (call.size - 1) * part(call, call.rank);
}

double sent_by_all_reduce(Algorithm algorithm, const Call& call, double full) {
  switch (algorithm) {
    case Algorithm::Ring:
      return 2 * full - part(call, call.rank) - part(call, next_in_ring(call));
    case Algorithm::Tree:
      return (num_tree_children(call, 0) + (call.rank != 0 ? 1 : 0)) * full;
    case Algorithm::DoubleTree: {
      const int place = call.rank + 1, top = static_cast<int>(std::bit_floor(static_cast<unsigned>(call.size)));
      const int second_top = call.size % 2 == 0 ? call.size + 1 - top : top + 1;
      const int num_parents = 2 - (place == top ? 1 : 0) - (place == second_top ? 1 : 0);
      return (num_double_tree_children(place, call.size) + num_parents) * full / 2;
    }
    case Algorithm::Direct:
      return sent_by_direct_all_reduce(call, full);
    case Algorithm::RecursiveDoubling:
    case Algorithm::HalvingDoubling:
      return sent_by_powers_of_two(algorithm, call, full);
    case Algorithm::Hierarchical: {
      const int per_node = call.topology->ranks_per_node();
      return twice_all_but_one_of(per_node, full) + twice_all_but_one_of(call.topology->num_nodes(), full / per_node);
    }
    default:
      no_formula(call.primitive, algorithm);
  }
}

}  // namespace

double predicted_sent_elements(Algorithm algorithm, const Call& call) {
  if (!builder_applies(call.primitive, algorithm, call.topology)) no_formula(call.primitive, algorithm);
  if (call.size == 1) return 0;
  const double elements = static_cast<double>(call.count);
  switch (call.primitive) {
    case Primitive::Broadcast:
      return sent_by_broadcast(algorithm, call, elements);
    // Whatever the way, each contribution leaves its rank once, in a sum.
    case Primitive::Reduce:
      return call.rank == call.root ? 0 : elements;
    case Primitive::AllReduce:
      return sent_by_all_reduce(algorithm, call, elements);
    case Primitive::AllGather:
    case Primitive::ReduceScatter:
      return sent_by_block_primitive(algorithm, call);
    case Primitive::AllToAll:
      return sent_by_all_to_all(algorithm, call);
    default:
      no_formula(call.primitive, algorithm);
  }
}

}  // namespace sixfold::comm
