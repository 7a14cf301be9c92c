#include "runtime/parallel/flat_layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "runtime/core/error.h"
#include "runtime/parallel/bucket.h"

namespace sixfold::parallel {
namespace {

constexpr int64_t kOneBucket = int64_t{1} << 40;

std::vector<int64_t> piece_counts(const BucketLayout& bucket, int num_shards) {
  std::vector<int64_t> counts;
  for (int r = 0; r < num_shards; ++r) counts.push_back(bucket.piece(r).count());
  return counts;
}

TEST(FlatLayout, PiecesOfABucket) {
  const struct {
    int64_t count;
    int num_shards;
    std::vector<int64_t> pieces;
    int64_t padded;
  } cases[] = {
      {57, 2, {29, 28}, 58}, {10, 4, {3, 3, 3, 1}, 12}, {1, 4, {1, 0, 0, 0}, 4}, {8, 6, {2, 2, 2, 2, 0, 0}, 12},
      {0, 3, {0, 0, 0}, 0},  {12, 4, {3, 3, 3, 3}, 12}, {5, 1, {5}, 5}};
  for (const auto& c : cases) {
    // The same number of elements as one parameter and as several, one of which has shape (0, 8).
    for (const std::vector<int64_t>& counts :
         {std::vector<int64_t>{c.count}, std::vector<int64_t>{c.count / 3, 0, c.count - c.count / 3}}) {
      const FlatLayout layout = make_flat_layout(counts, c.num_shards, kOneBucket);
      ASSERT_EQ(layout.buckets.size(), 1u);
      EXPECT_EQ(piece_counts(layout.buckets[0], c.num_shards), c.pieces);
      EXPECT_EQ(layout.buckets[0].count, c.count);
      EXPECT_EQ(layout.buckets[0].padded_count, c.padded);
    }
  }
}

TEST(FlatLayout, BucketsRunBackwardsAndCloseWhenFull) {
  // wte wpe h0.w h0.b h1.w h1.b ln
  const std::vector<int64_t> counts = {50, 10, 30, 3, 30, 3, 2};
  const FlatLayout layout = make_flat_layout(counts, 2, 35);
  ASSERT_EQ(layout.buckets.size(), 3u);
  EXPECT_EQ(layout.buckets[0].parameters, (std::vector<size_t>{6, 5, 4}));  // 2 + 3 + 30: just reaches 35
  EXPECT_EQ(layout.buckets[1].parameters, (std::vector<size_t>{3, 2, 1}));  // 3 + 30, one short, + 10
  EXPECT_EQ(layout.buckets[2].parameters, (std::vector<size_t>{0}));        // the tied embedding is last
  EXPECT_EQ(layout.buckets[1].count, 43);
  EXPECT_EQ(layout.buckets[1].padded_count, 44);
  EXPECT_EQ(layout.places[4].bucket, 0u);
  EXPECT_EQ(layout.places[4].offset, 5);
  EXPECT_EQ(layout.places[1].offset, 33);
  EXPECT_EQ(layout.places[0].offset, 0);
}

TEST(FlatLayout, BucketOfZeroHoldsOneParameter) {
  const std::vector<int64_t> counts = {4, 0, 7};
  const FlatLayout layout = make_flat_layout(counts, 2, 0);
  ASSERT_EQ(layout.buckets.size(), 3u);
  EXPECT_EQ(layout.buckets[0].parameters, std::vector<size_t>{2});
  EXPECT_EQ(layout.buckets[1].parameters, std::vector<size_t>{1});
  EXPECT_EQ(layout.buckets[1].padded_count, 0);
  EXPECT_EQ(layout.buckets[2].parameters, std::vector<size_t>{0});
}

TEST(FlatLayout, NothingMakesNoBucket) {
  EXPECT_TRUE(make_flat_layout({}, 4, 0).buckets.empty());
  EXPECT_THROW(make_flat_layout({}, 0, 0), CheckError);
  EXPECT_THROW(make_flat_layout(std::vector<int64_t>{3, -1}, 2, 0), CheckError);
}

// Copies the elements of `parameters` to the pieces of each shard and back, by the segment tables.
TEST(FlatLayout, GatherOfScatterIsTheSameBits) {
  for (int64_t size = 0; size <= 40; ++size) {
    const std::vector<int64_t> counts = {size / 2, 0, size - size / 2 - size / 5, size / 5};
    std::vector<std::vector<uint32_t>> parameters, gathered;
    uint32_t next = 0x7fc00001u;  // NaNs with a payload: only a copy of bits brings them back
    for (int64_t count : counts) {
      parameters.emplace_back(static_cast<size_t>(count));
      std::iota(parameters.back().begin(), parameters.back().end(), next);
      next += static_cast<uint32_t>(count);
      gathered.emplace_back(static_cast<size_t>(count));
    }
    for (int n = 1; n <= 8; ++n) {
      for (int64_t bucket_count : {int64_t{0}, int64_t{7}, kOneBucket}) {
        const FlatLayout layout = make_flat_layout(counts, n, bucket_count);
        for (auto& parameter : gathered) std::fill(parameter.begin(), parameter.end(), 0u);
        int64_t seen = 0;
        for (size_t b = 0; b < layout.buckets.size(); ++b) {
          const BucketLayout& bucket = layout.buckets[b];
          EXPECT_EQ(bucket.padded_count, n * bucket.piece_count);
          for (int r = 0; r < n; ++r) {
            const FlatRange piece = bucket.piece(r);
            std::vector<uint32_t> shard(static_cast<size_t>(bucket.piece_count), 0u);
            for (const FlatSegment& s : segments_in(layout, b, piece)) {
              ASSERT_GT(s.count, 0);
              const int64_t at = s.offset - r * bucket.piece_count;
              ASSERT_LE(0, at);
              ASSERT_LE(at + s.count, bucket.piece_count);
              const auto bytes = static_cast<size_t>(s.count) * sizeof(uint32_t);
              std::memcpy(&shard[static_cast<size_t>(at)],
                          &parameters[s.parameter][static_cast<size_t>(s.parameter_offset)], bytes);
              std::memcpy(&gathered[s.parameter][static_cast<size_t>(s.parameter_offset)],
                          &shard[static_cast<size_t>(at)], bytes);
              seen += s.count;
            }
            // What no segment covers is padding.
            for (int64_t i = piece.count(); i < bucket.piece_count; ++i) EXPECT_EQ(shard[static_cast<size_t>(i)], 0u);
          }
        }
        EXPECT_EQ(seen, size);  // each element in one segment only
        EXPECT_EQ(gathered, parameters) << size << " elements, " << n << " shards, bucket of " << bucket_count;
      }
    }
  }
}

TEST(FlatLayout, SegmentsCutParametersAtPieces) {
  // Bucket: parameter 1 in [0, 6), parameter 0 in [6, 10); 4 shards of 3, 3, 3, 1.
  const FlatLayout layout = make_flat_layout(std::vector<int64_t>{4, 6}, 4, kOneBucket);
  const auto third = segments_in(layout, 0, layout.buckets[0].piece(2));
  ASSERT_EQ(third.size(), 1u);
  EXPECT_EQ(third[0].parameter, 0u);
  EXPECT_EQ(third[0].parameter_offset, 0);
  EXPECT_EQ(third[0].offset, 6);
  EXPECT_EQ(third[0].count, 3);
  const auto middle = segments_in(layout, 0, {4, 8});
  ASSERT_EQ(middle.size(), 2u);
  EXPECT_EQ(middle[0].parameter, 1u);
  EXPECT_EQ(middle[0].parameter_offset, 4);
  EXPECT_EQ(middle[0].count, 2);
  EXPECT_EQ(middle[1].parameter, 0u);
  EXPECT_EQ(middle[1].offset, 6);
  EXPECT_EQ(middle[1].count, 2);
}

TEST(FlatLayout, PartsOfAParameterAreWhatItsShardsHold) {
  const FlatLayout layout = make_flat_layout(std::vector<int64_t>{4, 6}, 4, kOneBucket);
  // Pieces [0, 3) [3, 6) [6, 9) [9, 10): parameter 1 is in the first two, parameter 0 in the others.
  const int64_t expected[2][4][2] = {{{0, 0}, {0, 0}, {0, 3}, {3, 4}}, {{0, 3}, {3, 6}, {6, 6}, {6, 6}}};
  for (size_t parameter = 0; parameter < 2; ++parameter) {
    for (int shard = 0; shard < 4; ++shard) {
      const FlatRange part = part_of(layout, parameter, shard);
      EXPECT_EQ(part.begin, expected[parameter][shard][0]);
      EXPECT_EQ(part.end, expected[parameter][shard][1]);
    }
  }
}

TEST(FlatLayout, BucketsCanBeGiven) {
  const FlatLayout layout = make_flat_layout(std::vector<int64_t>{4, 6, 1}, 2, std::vector<size_t>{1, 0, 1});
  ASSERT_EQ(layout.buckets.size(), 2u);
  EXPECT_EQ(layout.buckets[0].parameters, (std::vector<size_t>{1}));
  EXPECT_EQ(layout.buckets[1].parameters, (std::vector<size_t>{2, 0}));
  EXPECT_EQ(layout.places[0].offset, 1);
  EXPECT_EQ(layout.buckets[1].padded_count, 6);
}

// ---- Buckets without ranks -----------------------------------------------------------------------------------------

struct FourParameters : testing::Test {
  FourParameters() : layout(make_flat_layout(std::vector<int64_t>{6, 0, 3, 2}, 4, 5)) {
    const Shape shapes[] = {{2, 3}, {0, 8}, {3}, {2}};
    for (size_t i = 0; i < 4; ++i) {
      storage[i].name = std::string(1, static_cast<char>('a' + i));
      storage[i].full_shape = shapes[i];
      parameters.push_back(&storage[i]);
    }
  }
  Memory memory;  // first: the parameters view its blocks
  Parameter storage[4];
  std::vector<Parameter*> parameters;
  FlatLayout layout;  // buckets {d, c} and {b, a}
};

TEST_F(FourParameters, ArePlacedAsViewsOfAlignedZeroBuffers) {
  const std::vector<Tensor> values = make_buckets(layout, memory, DType::F32, Category::Parameters);
  const std::vector<Tensor> grads = make_buckets(layout, memory, DType::F32, Category::Gradients);
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(values[0].numel(), 8);  // 5 elements in 4 pieces of 2
  EXPECT_EQ(grads[1].numel(), 8);   // 6 elements in 4 pieces of 2
  EXPECT_EQ(memory.live_bytes(Category::Parameters), 64u);
  EXPECT_EQ(memory.live_bytes(Category::Gradients), 64u);
  for (size_t b = 0; b < 2; ++b) {
    view_bucket(parameters, layout.buckets[b], values[b], &Parameter::value);
    view_bucket(parameters, layout.buckets[b], grads[b], &Parameter::grad);
    for (const Tensor& tensor : {values[b], grads[b]}) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.raw()) % 64, 0u);
      for (int64_t i = 0; i < tensor.numel(); ++i) EXPECT_EQ(tensor.data<float>()[i], 0.0f);
    }
  }
  EXPECT_EQ(storage[0].value.shape(), (Shape{2, 3}));
  EXPECT_EQ(storage[1].value.shape(), (Shape{0, 8}));
  EXPECT_EQ(storage[3].value.raw(), values[0].raw());
  EXPECT_EQ(storage[2].grad.data<float>(), grads[0].data<float>() + 2);
  EXPECT_EQ(storage[0].grad.data<float>(), grads[1].data<float>());
  view_bucket(parameters, layout.buckets[1], {}, &Parameter::grad);
  EXPECT_FALSE(storage[0].grad.defined());
  EXPECT_TRUE(storage[2].grad.defined());
}

TEST_F(FourParameters, BucketsAreHandedOutInOrderWhateverIsReadyFirst) {
  BucketQueue queue(parameters, layout);
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    queue.reset();
    EXPECT_EQ(queue.take(), std::nullopt);
    queue.mark_ready(storage[0]);
    queue.mark_ready(storage[1]);
    EXPECT_EQ(queue.take(), std::nullopt);  // bucket 1 is complete, bucket 0 is not
    queue.mark_ready(storage[2]);
    EXPECT_EQ(queue.take(), std::nullopt);
    queue.mark_ready(storage[3]);
    EXPECT_EQ(queue.take(), std::optional<size_t>(0));
    EXPECT_EQ(queue.take(), std::optional<size_t>(1));
    EXPECT_EQ(queue.take(), std::nullopt);
  }
}

TEST_F(FourParameters, WhatIsNeverReadyCountsAtTheEndAndFrozenIsNotWaitedFor) {
  storage[3].frozen = true;
  BucketQueue queue(parameters, layout);
  queue.mark_ready(storage[2]);
  EXPECT_EQ(queue.take(), std::optional<size_t>(0));  // d is frozen
  EXPECT_EQ(queue.take(), std::nullopt);
  queue.mark_rest_ready();
  EXPECT_EQ(queue.take(), std::optional<size_t>(1));
  EXPECT_THROW(queue.mark_ready(storage[3]), CheckError);

  storage[2].frozen = true;  // with d, all of bucket 0
  BucketQueue second_only(parameters, layout);
  second_only.mark_rest_ready();
  EXPECT_EQ(second_only.take(), std::optional<size_t>(1));
  EXPECT_EQ(second_only.take(), std::nullopt);
}

TEST_F(FourParameters, ReadyTwiceOrUnknownIsACheck) {
  BucketQueue queue(parameters, layout);
  queue.mark_ready(storage[2]);
  EXPECT_THROW(queue.mark_ready(storage[2]), CheckError);
  Parameter stranger;
  stranger.name = "c";
  EXPECT_THROW(queue.mark_ready(stranger), CheckError);
}

}  // namespace
}  // namespace sixfold::parallel
