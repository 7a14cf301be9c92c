#include "runtime/parallel/flat_layout.h"

#include <algorithm>

#include "runtime/core/error.h"

namespace sixfold::parallel {

FlatRange BucketLayout::piece(int shard) const {
  return {std::min(count, shard * piece_count), std::min(count, (shard + 1) * piece_count)};
}

FlatLayout make_flat_layout(std::span<const int64_t> counts, int num_shards, int64_t bucket_count) {
  SIXFOLD_CHECK_LE(1, num_shards, "shards of a flat layout");
  FlatLayout layout;
  layout.places.resize(counts.size());
  bool closed = true;
  for (size_t i = counts.size(); i-- > 0;) {
    SIXFOLD_CHECK_LE(0, counts[i], "elements of parameter " + std::to_string(i));
    if (closed) layout.buckets.emplace_back();
    BucketLayout& bucket = layout.buckets.back();
    layout.places[i] = {layout.buckets.size() - 1, bucket.count, counts[i]};
    bucket.parameters.push_back(i);
    bucket.count += counts[i];
    closed = bucket.count >= bucket_count;
  }
  for (BucketLayout& bucket : layout.buckets) {
    bucket.piece_count = (bucket.count + num_shards - 1) / num_shards;
    bucket.padded_count = num_shards * bucket.piece_count;
  }
  return layout;
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
