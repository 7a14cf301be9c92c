#include "runtime/comm/schedule/select.h"

namespace sixfold::comm {

namespace {
// Direct exchanges between all pairs move as few bytes as a ring and synchronise twice instead of 2(N-1) times; on one
// host, where every pair has its own link, that wins until the pairs are many.
constexpr int kDirectRanks = 8;
// Below this a tree's few hops beat a ring's N - 1.
constexpr size_t kSmallBytes = 64 * 1024;
}  // namespace

Algorithm select(Primitive primitive, size_t bytes, int size, bool deterministic) {
  if (primitive == Primitive::AllToAll) return Algorithm::Pairwise;
  if (deterministic) return Algorithm::Direct;
  if (primitive == Primitive::Broadcast || primitive == Primitive::Reduce) {
    return bytes <= kSmallBytes ? Algorithm::Tree : Algorithm::Ring;
  }
  if (size <= kDirectRanks) return Algorithm::Direct;
  if (primitive == Primitive::AllReduce && bytes <= kSmallBytes) return Algorithm::Tree;
  return Algorithm::Ring;
}

}  // namespace sixfold::comm
