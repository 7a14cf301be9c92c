#include "runtime/parallel/flat_layout.h"

#include <algorithm>

#include "runtime/core/error.h"

namespace sixfold::parallel {

FlatRange BucketLayout::piece(int shard) const {
  return {std::min(count, shard * piece_count), std::min(count, (shard + 1) * piece_count)};
}

FlatLayout make_flat_layout(std::span<const int64_t> counts, int num_shards, int64_t bucket_count) {
  std::vector<size_t> bucket_of(counts.size());
  size_t num_buckets = 0;
  int64_t filled = bucket_count;
  for (size_t i = counts.size(); i-- > 0;) {
    if (filled >= bucket_count) {
      ++num_buckets;
      filled = 0;
    }
    bucket_of[i] = num_buckets - 1;
    filled += counts[i];
  }
  return make_flat_layout(counts, num_shards, bucket_of);
}

FlatLayout make_flat_layout(std::span<const int64_t> counts, int num_shards, std::span<const size_t> bucket_of) {
  SIXFOLD_CHECK_LE(1, num_shards, "shards of a flat layout");
  SIXFOLD_CHECK_EQ(counts.size(), bucket_of.size(), "parameters with a bucket");
  FlatLayout layout;
  layout.places.resize(counts.size());
  if (!bucket_of.empty()) layout.buckets.resize(*std::max_element(bucket_of.begin(), bucket_of.end()) + 1);
  for (size_t i = counts.size(); i-- > 0;) {
    SIXFOLD_CHECK_LE(0, counts[i], "elements of parameter " + std::to_string(i));
    BucketLayout& bucket = layout.buckets[bucket_of[i]];
    layout.places[i] = {bucket_of[i], bucket.count, counts[i]};
    bucket.parameters.push_back(i);
    bucket.count += counts[i];
  }
  for (BucketLayout& bucket : layout.buckets) {
    bucket.piece_count = (bucket.count + num_shards - 1) / num_shards;
    bucket.padded_count = num_shards * bucket.piece_count;
  }
  return layout;
}

FlatRange part_of(const FlatLayout& layout, size_t parameter, int shard) {
  const FlatLayout::Place& place = layout.places.at(parameter);
  const FlatRange piece = layout.buckets[place.bucket].piece(shard);
  const auto in_parameter = [&](int64_t at) { return std::clamp(at - place.offset, int64_t{0}, place.count); };
  return {in_parameter(piece.begin), in_parameter(piece.end)};
}

std::vector<FlatSegment> segments_in(const FlatLayout& layout, size_t bucket, FlatRange range) {
  std::vector<FlatSegment> segments;
  for (size_t i : layout.buckets.at(bucket).parameters) {
    const FlatLayout::Place& place = layout.places[i];
    const int64_t begin = std::max(range.begin, place.offset);
    const int64_t end = std::min(range.end, place.offset + place.count);
    if (begin < end) segments.push_back({i, begin - place.offset, begin, end - begin});
  }
  return segments;
}

}  // namespace sixfold::parallel
