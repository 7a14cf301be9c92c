#include "runtime/comm/observe/predict.h"

#include <algorithm>

#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

/// Children of `rank` in a heap-ordered binary tree with `top` at its top.
int num_tree_children(int rank, int size, int top) {
  const int position = (rank - top + size) % size;
  return std::clamp(size - 1 - 2 * position, 0, 2);
}

[[noreturn]] void no_formula(Primitive primitive, Algorithm algorithm) {
  throw CheckError("predicted_sent_elements: no algorithm '" + std::string(algorithm_name(algorithm)) + "' for " +
                   std::string(primitive_name(primitive)));
}

double sent_by_all_reduce(Algorithm algorithm, int rank, int size, double full) {
  const double n = size;
  switch (algorithm) {
    case Algorithm::Ring:
      return 2 * (n - 1) / n * full;
    case Algorithm::Tree:
      return (num_tree_children(rank, size, 0) + (rank != 0 ? 1 : 0)) * full;
    case Algorithm::Direct:
      return full * n <= kOneShotCount ? (n - 1) * full : 2 * (n - 1) / n * full;
    default:
      no_formula(Primitive::AllReduce, algorithm);
  }
}

double sent_by_broadcast(Algorithm algorithm, int rank, int size, int root, double full) {
  switch (algorithm) {
    case Algorithm::Ring:
      return (rank + 1) % size == root ? 0 : full;
    case Algorithm::Tree:
      return num_tree_children(rank, size, root) * full;
    case Algorithm::Direct:
      return rank == root ? (size - 1) * full : 0;
    default:
      no_formula(Primitive::Broadcast, algorithm);
  }
}

}  // namespace

double predicted_sent_elements(Primitive primitive, Algorithm algorithm, int rank, int size, int root, size_t count) {
  const std::vector<Algorithm> known = algorithms_of(primitive);
  if (std::find(known.begin(), known.end(), algorithm) == known.end()) no_formula(primitive, algorithm);
  const double elements = static_cast<double>(count);
  switch (primitive) {
    case Primitive::Broadcast:
      return sent_by_broadcast(algorithm, rank, size, root, elements);
    // Whatever the way, each contribution leaves its rank once, in a sum.
    case Primitive::Reduce:
      return rank == root ? 0 : elements;
    case Primitive::AllReduce:
      return sent_by_all_reduce(algorithm, rank, size, elements);
    // Every block but one's own: (N-1)/N of N * count.
    case Primitive::AllGather:
    case Primitive::ReduceScatter:
    case Primitive::AllToAll:
      return (size - 1) * elements;
    default:
      no_formula(primitive, algorithm);
  }
}

}  // namespace sixfold::comm
