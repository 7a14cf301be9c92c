// Passes: as large as the links allow, covering everything once, with offsets beyond 32 bits.
#include "tests/schedule_cases.h"

namespace sixfold::comm {
namespace {

size_t largest_step(const Builder builder, const Call& call) {
  size_t largest = 0;
  for (int rank = 0; rank < call.size; ++rank) {
    for (const Step& step : builder(on_rank(call, rank)).steps) largest = std::max(largest, step.count());
  }
  return largest;
}

TEST(MaxPassCount, IsTheLargestThatTheSlotsHold) {
  for_each_builder({1, 2, 3, 4, 5, 8, 9, 17, 64}, 0, [](Builder builder, Call call, Algorithm algorithm) {
    for (size_t capacity : {1, 2, 3, 7, 64, 1000}) {
      for (size_t count : {size_t{1}, size_t{5}, size_t{100}, size_t{200000}}) {
        const auto largest = [&](size_t for_count) {
          return max_pass_count(call.primitive, algorithm, call.size, capacity, for_count, call.topology);
        };
        call.count = count;
        call.step_capacity = capacity;
        call.pass_count = std::min(largest(count), count);
        EXPECT_LE(largest_step(builder, call), capacity) << count;
        call.pass_count = std::min(largest(0), count);
        EXPECT_LE(largest_step(builder, call), capacity) << count;
        if (largest(count) >= count) continue;
        call.pass_count = largest(count) + 1;
        EXPECT_GT(largest_step(builder, call), capacity) << count;
      }
    }
  });
  EXPECT_EQ(max_pass_count(Primitive::AllReduce, Algorithm::Ring, 4, SIZE_MAX / 2), SIZE_MAX);
}

/// What one pass covers when a step moves 1000 elements at most: the whole buffer, or a part of it a step.
size_t expected_per_pass(const Call& call, Algorithm algorithm) {
  const size_t n = static_cast<size_t>(call.size);
  if (algorithm == Algorithm::DoubleTree) return n > 1 ? 2000 : 1000;
  if (call.primitive != Primitive::AllReduce) return 1000;
  if (algorithm == Algorithm::Ring || algorithm == Algorithm::Direct) return 1000 * n;
  if (algorithm == Algorithm::HalvingDoubling) return n == 2 || n == 4 ? 2000 : 1000;
  if (algorithm == Algorithm::Hierarchical) {
    const int per_node = call.topology->ranks_per_node();
    return 1000 * static_cast<size_t>(per_node > 1 ? per_node : call.size);
  }
  return 1000;
}

/// Where sums are kept in Output before they are final.
bool adds_in_output(const Call& call, Algorithm algorithm) {
  return call.primitive == Primitive::AllReduce &&
         (algorithm == Algorithm::RecursiveDoubling || algorithm == Algorithm::HalvingDoubling ||
          algorithm == Algorithm::Hierarchical);
}

// A chunk limit of 1000 elements and 10007 of them: the results that the passes write are everything, once.
TEST(Passes, CoverEverythingOnce) {
  constexpr size_t kCount = 10007;
  for_each_builder({1, 2, 3, 4}, kCount, [&](Builder builder, Call call, Algorithm algorithm) {
    const size_t pass_count = max_pass_count(call.primitive, algorithm, call.size, 1000, kCount, call.topology);
    for (call.rank = 0; call.rank < call.size; ++call.rank) {
      std::vector<int> writes(output_count(call.primitive, kCount, call.size), 0);
      size_t num_passes = 0;
      for (call.pass_offset = 0; call.pass_offset < kCount; call.pass_offset += pass_count, ++num_passes) {
        call.pass_count = std::min(pass_count, kCount - call.pass_offset);
        for (const Step& step : builder(call).steps) {
          EXPECT_LE(step.count(), 1000u);
          if (!step.dst.used || step.dst.buffer != Buffer::Output) continue;
          ASSERT_LE(step.dst.offset + step.dst.count, writes.size());
          for (size_t i = 0; i < step.dst.count; ++i) ++writes[step.dst.offset + i];
        }
      }
      const bool nothing = call.primitive == Primitive::Reduce && call.rank != call.root;
      const bool more = adds_in_output(call, algorithm);
      const auto right = [&](int times) { return nothing ? times == 0 : times == 1 || (more && times > 1); };
      EXPECT_TRUE(std::all_of(writes.begin(), writes.end(), right));
      const size_t per_pass = expected_per_pass(call, algorithm);
      EXPECT_EQ(num_passes, (kCount + per_pass - 1) / per_pass);
    }
  });
}

// ---- 64-bit offsets ------------------------------------------------------------------------------------------------

/// Elements of `buffer` that steps of any rank reach, as the end of the furthest slice.
size_t furthest_end(Builder builder, const Call& call, Buffer buffer) {
  size_t end = 0;
  for (int rank = 0; rank < call.size; ++rank) {
    for (const Step& step : builder(on_rank(call, rank)).steps) {
      for (const Slice& slice : {step.src, step.dst}) {
        if (slice.used && slice.buffer == buffer) end = std::max(end, slice.offset + slice.count);
      }
    }
  }
  return end;
}

TEST(HugeCounts, LastPassEndsWhereTheBuffersEnd) {
  EXPECT_EQ(kHuge * sizeof(float), 8589934660u);
  for_each_builder({1, 2, 3, 4, 6, 8}, kHuge, [](Builder builder, Call call, Algorithm) {
    call.pass_offset = kHuge - 1017;
    call.pass_count = 1017;
    EXPECT_EQ(furthest_end(builder, call, Buffer::Input), input_count(call.primitive, kHuge, call.size));
    EXPECT_EQ(furthest_end(builder, call, Buffer::Output), output_count(call.primitive, kHuge, call.size));
    for (int rank = 0; rank < call.size; ++rank) {
      for (const Step& step : builder(on_rank(call, rank)).steps) {
        for (const Slice& slice : {step.src, step.dst}) {
          if (!slice.used || slice.buffer == Buffer::Accum || slice.buffer == Buffer::Scratch) continue;
          EXPECT_GE(slice.offset % kHuge, kHuge - 1017) << to_string(step);  // of the last pass of some block
          EXPECT_LE(slice.count, 1017u);
        }
      }
    }
  });
}

// All in one pass, in steps that may hold all: the furthest offsets that there are, in every buffer.
TEST(HugeCounts, OnePassReachesTheEndOfEveryBuffer) {
  for_each_builder({2, 3, 4, 6, 8}, kHuge, [](Builder builder, Call call, Algorithm) {
    call.step_capacity = SIZE_MAX;
    size_t scratch = 0, accum = 0;
    for (int rank = 0; rank < call.size; ++rank) {
      scratch = std::max(scratch, builder(on_rank(call, rank)).scratch_count);
      accum = std::max(accum, builder(on_rank(call, rank)).accum_count);
    }
    for (const auto& [buffer, expected] : {std::pair(Buffer::Input, input_count(call.primitive, kHuge, call.size)),
                                           std::pair(Buffer::Output, output_count(call.primitive, kHuge, call.size)),
                                           std::pair(Buffer::Scratch, scratch), std::pair(Buffer::Accum, accum)}) {
      EXPECT_EQ(furthest_end(builder, call, buffer), expected) << static_cast<int>(buffer);
    }
  });
}

TEST(HugeCounts, OnePassCanHoldItAll) {
  // The parts of PartOf.Table, as rank 0 gathers them: after its own, from rank 3, 2 and 1.
  for (Algorithm algorithm : {Algorithm::Ring, Algorithm::Direct}) {
    std::vector<size_t> begins;
    for (const Step& step :
         find_builder(Primitive::AllReduce, algorithm)(make_call(Primitive::AllReduce, 4, kHuge)).steps) {
      if (step.dst.used && step.dst.buffer == Buffer::Output) begins.push_back(step.dst.offset);
    }
    EXPECT_EQ(begins, (std::vector<size_t>{0, 1610612749, 1073741833, 536870917})) << algorithm_name(algorithm);
  }
  Call call = make_call(Primitive::AllToAll, 4, kHuge);
  call.rank = 3;
  EXPECT_EQ(find_builder(Primitive::AllToAll, Algorithm::Pairwise)(call).steps.front().src.offset, 6442450995u);
}

}  // namespace
}  // namespace sixfold::comm
