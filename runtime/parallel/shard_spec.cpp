#include "runtime/parallel/shard_spec.h"

#include <string>

namespace sixfold::parallel {

namespace {

std::string describe(const ShardSpec& spec, const Shape& full) {
  return "piece " + std::to_string(spec.index) + " of " + std::to_string(spec.count) + " of each of " +
         std::to_string(spec.parts) + " parts of dim " + std::to_string(spec.dim) + " of " + sixfold::to_string(full);
}

}  // namespace

Shape ShardSpec::local_shape(const Shape& full) const {
  SIXFOLD_CHECK(parts >= 1 && 0 <= index && index < count, describe(*this, full));
  SIXFOLD_CHECK(0 <= dim && dim < static_cast<int>(full.size()), describe(*this, full));
  Shape local = full;
  int64_t& length = local[static_cast<size_t>(dim)];
  SIXFOLD_CHECK_EQ(length % (int64_t{parts} * count), 0, describe(*this, full));
  length /= count;
  return local;
}

int64_t ShardSpec::global_index(const Shape& full, int64_t local_index) const {
  if (count == 1) return local_index;
  // Seen from the cut dim, a tensor is [outer, length, inner] and so is the piece, with a shorter length.
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(dim) + 1; d < full.size(); ++d) inner *= full[d];
  const int64_t length = full[static_cast<size_t>(dim)];
  const int64_t part_length = length / parts;
  const int64_t piece_length = part_length / count;
  const int64_t local_length = length / count;

  const int64_t i = local_index % inner;
  const int64_t row = local_index / inner;
  const int64_t outer = row / local_length;
  const int64_t part = row % local_length / piece_length;
  const int64_t within = row % local_length % piece_length;
  return (outer * length + part * part_length + index * piece_length + within) * inner + i;
}

}  // namespace sixfold::parallel
