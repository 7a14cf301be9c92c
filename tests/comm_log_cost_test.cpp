// What the log of operations costs where it is off: no allocation; and where it is on: one a chunk of records.
#include <cstdlib>
#include <new>

#include "runtime/comm/observe/comm_log.h"
#include "tests/harness.h"

namespace {
thread_local int64_t num_allocations = 0;
}  // namespace

// Every allocation of this program comes by here. Not inline, or compilers see malloc and delete, and call it a
// mismatch.
__attribute__((noinline)) void* operator new(size_t bytes) {
  ++num_allocations;
  if (void* block = std::malloc(bytes)) return block;
  throw std::bad_alloc();
}
// Arrays have an operator of their own, since that of a sanitizer does not come by here.
__attribute__((noinline)) void* operator new[](size_t bytes) {
  return ::operator new(bytes);
}
__attribute__((noinline)) void operator delete(void* block) noexcept {
  std::free(block);
}
__attribute__((noinline)) void operator delete(void* block, size_t) noexcept {
  std::free(block);
}
__attribute__((noinline)) void operator delete[](void* block) noexcept {
  std::free(block);
}
__attribute__((noinline)) void operator delete[](void* block, size_t) noexcept {
  std::free(block);
}

namespace sixfold::test {
namespace {

/// Allocations of the rank's thread in 600 sums, once all that they need has been used before.
int64_t allocations_of_sums(comm::World& world) {
  std::vector<float> x(1000, 1.0f);
  const comm::Buf buf(x.data(), x.size(), DType::F32);
  const comm::Options options{.tag = "x"};
  int64_t before = 0;
  for (int i = 0; i < 700; ++i) {
    if (i == 100) before = num_allocations;
    world.group().all_reduce(buf, buf, ReduceOp::Max, options).wait();
  }
  return num_allocations - before;
}

TEST(CommLogCost, AllocatesNothingWhereItIsOff) {
  for (const bool times_waits : {false, true}) {
    comm::WorldOptions options;
    options.time_waits = times_waits;
    run_ranks(
        2,
        [](comm::World& world) {
          EXPECT_EQ(world.comm_log(), nullptr);
          EXPECT_EQ(allocations_of_sums(world), 0);
        },
        options);
  }
}

TEST(CommLogCost, AllocatesChunksWhereItIsOn) {
  comm::WorldOptions options;
  options.comm_log_bytes = size_t{8} << 20;
  run_ranks(
      2,
      [](comm::World& world) {
        const size_t bytes = 600 * (sizeof(comm::LoggedOperation) + 2 * sizeof(comm::ExposedInterval));
        const int64_t num_allocated = allocations_of_sums(world);
        EXPECT_GT(num_allocated, 0);
        EXPECT_LE(num_allocated, static_cast<int64_t>(bytes / (64 << 10)) + 2);
      },
      options);
}

}  // namespace
}  // namespace sixfold::test
