// A plan holds the first and the last pass only: every pass in between must be what its builder would write.
#include "runtime/comm/host/plan.h"

#include "tests/verify_harness.h"

namespace sixfold::comm {
namespace {

Slice shifted(Slice slice, size_t shift) {
  const bool moves = slice.used && (slice.buffer == Buffer::Input || slice.buffer == Buffer::Output);
  if (moves) slice.offset += shift;
  return slice;
}

/// As the executor reads a step of the plan.
std::string text_of(Step step, size_t shift) {
  step.src = shifted(step.src, shift);
  step.dst = shifted(step.dst, shift);
  step.lands = shifted(step.lands, shift);
  return to_string(step);
}

void expect_alike(Call call, Algorithm algorithm, size_t capacity) {
  call.step_capacity = capacity;
  const Builder builder = find_builder(call.primitive, algorithm);
  const size_t pass_count = max_pass_count(call.primitive, algorithm, call.size, capacity, call.count, call.topology);
  for (call.rank = 0; call.rank < call.size; ++call.rank) {
    const Plan plan(call, builder, pass_count);
    for (size_t index = 0; index < plan.num_passes(); ++index) {
      Call pass = call;
      pass.pass_offset = index * pass_count;
      pass.pass_count = std::min(pass_count, call.count - pass.pass_offset);
      const Schedule expected = builder(pass);
      const Plan::Pass found = plan.pass(index);
      ASSERT_EQ(found.schedule->steps.size(), expected.steps.size()) << describe(call, algorithm);
      for (size_t i = 0; i < expected.steps.size(); ++i) {
        ASSERT_EQ(text_of(found.schedule->steps[i], found.shift), to_string(expected.steps[i]))
            << describe(call, algorithm) << ", pass " << index;
      }
      EXPECT_GE(plan.scratch_count(), expected.scratch_count);
      EXPECT_GE(plan.accum_count(), expected.accum_count);
      EXPECT_GE(plan.num_channels(), expected.num_channels);
    }
  }
}

TEST(Plan, PassesAreAlike) {
  for (const char* shape : {"1x2", "1x5", "2x3", "4x2"}) {
    const int nodes = shape[0] - '0', size = nodes * (shape[2] - '0');
    const Topology topology = Topology::parse(shape, size);
    for (const BuilderCase& c : all_builders(&topology)) {
      for (size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{300}, size_t{301}}) {
        for (bool in_place : {false, true}) {
          Call call = make_call(c.primitive, size, count, size - 1, in_place);
          call.topology = &topology;
          expect_alike(call, c.algorithm, 16);
        }
      }
    }
  }
}

TEST(Plan, BlocksOfDifferentSizeEndInDifferentPasses) {
  const std::vector<size_t> counts = {40, 0, 7, 33};
  Call call = make_call(Primitive::AllGather, 4, 40);
  call.counts = &counts;
  for (Algorithm algorithm : {Algorithm::Ring, Algorithm::Direct}) expect_alike(call, algorithm, 16);
}

}  // namespace
}  // namespace sixfold::comm
