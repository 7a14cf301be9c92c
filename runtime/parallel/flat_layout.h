// FlatLayout: where each parameter lies in the flat buckets, and how a bucket is cut into shards. Pure arithmetic.
//
//   parameters in unit order:   wte  wpe  h.0...  h.1...  ln_f
//   buckets, as backward        [ln_f h.1... ] [h.1... h.0...] [h.0... wpe wte]
//   completes them:
//   one bucket, N = 4 shards:   |  piece  |  piece  |  piece  |  piece + padding |
//
// What backward completes first comes first, so a bucket can travel while backward goes on. The tied token embedding,
// complete only when the embedding's backward has ended, is the first parameter of the first unit and so comes last.
//
// A shard piece is cut without regard to parameters, so all pieces of a bucket are equal but for the padding at the
// end. Source: Rajbhandari et al., "ZeRO", SC 2020, section 5; Li et al., "PyTorch Distributed", VLDB 2020,
// section 3.2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sixfold::parallel {

/// Elements [begin, end) of a bucket.
struct FlatRange {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};

/// One bucket; all numbers are elements.
struct BucketLayout {
  std::vector<size_t> parameters;  // indices, in the order in which they lie in the buffer
  int64_t count = 0;               // elements of parameters, without gaps from 0 on
  int64_t piece_count = 0;         // ceil(count / num_shards)
  int64_t padded_count = 0;        // num_shards * piece_count; the elements from `count` on are padding and stay 0

  /// What shard `shard` holds of the parameters: its piece without the padding, possibly empty.
  FlatRange piece(int shard) const;
};

struct FlatLayout {
  struct Place {
    size_t bucket = 0;
    int64_t offset = 0;
    int64_t count = 0;
  };
  std::vector<Place> places;  // by parameter index
  std::vector<BucketLayout> buckets;
};

/// Lays out parameters of `counts[i]` elements (>= 0), given in unit order, whole parameters a bucket. A bucket is
/// closed as soon as it holds `bucket_count` elements or more; 0: each parameter has its own. A function of its
/// arguments only, so all ranks of a group have the same one.
FlatLayout make_flat_layout(std::span<const int64_t> counts, int num_shards, int64_t bucket_count);

/// The same with the buckets given: parameter i is in bucket bucket_of[i]. Within a bucket, the last parameter comes
/// first, as above. Buckets count from 0 without a gap.
FlatLayout make_flat_layout(std::span<const int64_t> counts, int num_shards, std::span<const size_t> bucket_of);

/// The elements of parameter `parameter`, counted in the parameter, that shard `shard` holds: a range, since pieces and
/// parameters are both without gaps.
FlatRange part_of(const FlatLayout& layout, size_t parameter, int shard);

/// The part of one parameter that lies in a range of a bucket.
struct FlatSegment {
  size_t parameter = 0;
  int64_t parameter_offset = 0;  // first element, counted in the parameter
  int64_t offset = 0;            // the same element, counted in the bucket
  int64_t count = 0;             // > 0
};
/// Every element of the parameters in `range` of the bucket, in order, a segment for each parameter: what optimizer,
/// norm and files see. Padding is in none.
std::vector<FlatSegment> segments_in(const FlatLayout& layout, size_t bucket, FlatRange range);

}  // namespace sixfold::parallel
