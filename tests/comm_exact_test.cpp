// Every primitive, algorithm, dtype and op gives exact results on thread ranks: odd rank counts, odd counts, in place,
// unaligned, many slices and passes, through slots and past them.
#include "tests/collective_cases.h"
#include "tests/harness.h"
#include "tests/sanitized.h"

namespace sixfold::test {
namespace {

using comm::Algorithm;
using comm::Primitive;

// Slots of 64 bytes, so that a few hundred elements already take many slices and several passes.
// `in_place`: every full slice stays out of them, and is read or written in the peer's buffer.
comm::WorldOptions small_slots(int num_slots, bool in_place) {
  comm::WorldOptions options;
  options.links.num_slots = num_slots;
  options.links.slot_bytes = 64;
  options.links.min_in_place_bytes = in_place ? 64 : SIZE_MAX;
  options.links.min_lend_bytes = 64;
  options.timeout_s = 20;
  return options;
}

void expect_right(comm::World& world, const CollectiveCase& c) {
  EXPECT_EQ(run_case(world.group(), world.memory(), c), "");
}

bool has_root(Primitive p) {
  return p == Primitive::Broadcast || p == Primitive::Reduce;
}

void sweep(comm::World& world, const std::vector<size_t>& counts, bool in_place, size_t shift) {
  for (Primitive primitive : comm::kCollectives) {
    for (Algorithm algorithm : comm::algorithms_of(primitive)) {
      for (size_t count : counts) {
        CollectiveCase c;
        c.primitive = primitive;
        c.algorithm = algorithm;
        c.count = count;
        c.dtype = DType::I32;
        c.in_place = in_place;
        c.shift = shift;
        if (has_root(primitive)) c.root = static_cast<int>(count) % world.size();
        expect_right(world, c);
      }
    }
  }
}

class Exact : public ::testing::TestWithParam<int> {};

TEST_P(Exact, CountsAroundTheRankCount) {
  const size_t n = static_cast<size_t>(GetParam());
  std::vector<size_t> counts = {0, 1, n + 1, 1009};
  if (!kSanitized) counts.insert(counts.end(), {size_t{2}, n - 1, n, size_t{1000}});
  for (int num_slots : {2, 5}) {
    for (bool peers_reach : {false, true}) {
      run_ranks(
          GetParam(),
          [&](comm::World& world) {
            sweep(world, counts, false, 0);
            sweep(world, counts, true, 0);
          },
          small_slots(num_slots, peers_reach));
    }
  }
}

TEST_P(Exact, UnalignedWithCanaries) {
  run_ranks(
      GetParam(),
      [&](comm::World& world) {
        for (size_t shift : {size_t{1}, size_t{3}}) {
          sweep(world, {127, 128, 129, 1003}, false, shift);
          sweep(world, {127, 128, 129, 1003}, true, shift);
        }
      },
      small_slots(3, true));
}

TEST_P(Exact, DefaultSlots) {
  run_ranks(GetParam(), [&](comm::World& world) {
    sweep(world, {10557}, false, 1);
    sweep(world, {20011}, true, 0);
  });
}

TEST_P(Exact, EveryDtypeAndOp) {
  run_ranks(
      GetParam(),
      [&](comm::World& world) {
        for (Primitive primitive : comm::kCollectives) {
          for (Algorithm algorithm : comm::algorithms_of(primitive)) {
            for (DType dtype : kAllDTypes) {
              for (ReduceOp op : kAllReduceOps) {
                if (!comm::reduces(primitive) && op != ReduceOp::Sum) continue;
                if (!kernels::reduce_supported(dtype, op)) continue;
                expect_right(world, {primitive, algorithm, 101, dtype, op, world.size() - 1, op == ReduceOp::Max, 1});
              }
            }
          }
        }
      },
      small_slots(2, true));
}

// Few ranks have a race, or a stray byte, as well as many.
INSTANTIATE_TEST_SUITE_P(Ranks, Exact, ::testing::Range(1, kSanitized ? 5 : 10));

TEST(CommExact, CountZeroWithNullPointers) {
  for (int n = 1; n <= 5; ++n) {
    run_ranks(n, [](comm::World& world) {
      for (Primitive primitive : comm::kCollectives) {
        for (Algorithm algorithm : comm::algorithms_of(primitive)) {
          CollectiveCase c;
          c.primitive = primitive;
          c.algorithm = algorithm;
          issue(world.group(), c, {nullptr, 0, DType::F32}, {nullptr, 0, DType::F32}).wait();
        }
      }
      world.group().send({nullptr, 0, DType::F32}, (world.rank() + 1) % world.size()).wait();
      world.group().recv({nullptr, 0, DType::F32}, (world.rank() + world.size() - 1) % world.size()).wait();
    });
  }
}

TEST(CommExact, RefusedByName) {
  run_ranks(2, [](comm::World& world) {
    int32_t x[2] = {1, 2};
    const comm::Buf buf(x, 2, DType::I32);
    EXPECT_THROW(world.group().all_reduce(buf, buf, ReduceOp::Avg), ConfigError);
    EXPECT_THROW(world.group().all_reduce(buf, comm::Buf(x, 1, DType::I32), ReduceOp::Sum), ConfigError);
    EXPECT_THROW(world.group().all_reduce(buf, comm::Buf(x, 2, DType::F32), ReduceOp::Sum), ConfigError);
    EXPECT_THROW(world.group().broadcast(buf, 2), ConfigError);
    EXPECT_THROW(world.group().broadcast(comm::Buf(nullptr, 2, DType::I32), 0), ConfigError);
    EXPECT_THROW(world.group().all_to_all(comm::Buf(x, 1, DType::I32), comm::Buf(x, 1, DType::I32)), ConfigError);
    EXPECT_THROW(world.group().send(buf, 2), ConfigError);
    comm::Options pairwise;
    pairwise.algorithm = Algorithm::Pairwise;
    EXPECT_THROW(world.group().all_reduce(buf, buf, ReduceOp::Sum, pairwise), ConfigError);
    world.group().barrier();  // a refused call has not used up a sequence number on either rank
  });
}

// f32 rounding: the four values cancel in one order of additions and not in others.
TEST(CommExact, CancellationIsEqualOnAllRanks) {
  for (Algorithm algorithm : {Algorithm::Ring, Algorithm::Tree, Algorithm::Direct}) {
    run_ranks(4, [algorithm](comm::World& world) {
      const float inputs[4] = {1e8f, 1.0f, -1e8f, 1.0f};
      for (size_t count : {size_t{1}, size_t{7}, size_t{5000}, size_t{40000}}) {
        std::vector<float> x(count, inputs[world.rank()]), all(count * 4);
        comm::Options options;
        options.algorithm = algorithm;
        world.group()
            .all_reduce(comm::Buf(x.data(), count, DType::F32), comm::Buf(x.data(), count, DType::F32), ReduceOp::Sum,
                        options)
            .wait();
        world.group()
            .all_gather(comm::Buf(x.data(), count, DType::F32), comm::Buf(all.data(), all.size(), DType::F32))
            .wait();
        for (int r = 0; r < 4; ++r) {
          EXPECT_EQ(0, std::memcmp(all.data(), all.data() + static_cast<size_t>(r) * count, count * sizeof(float)));
        }
        // Direct adds in rank order: ((1e8 + 1) - 1e8) + 1 = 0 + 1, since 1e8 + 1 rounds to 1e8.
        if (algorithm == Algorithm::Direct) {
          EXPECT_EQ(1.0f, x.front());
          EXPECT_EQ(1.0f, x.back());
        }
      }
    });
  }
}

// Three bf16 values whose sum would lose the small ones if partial sums were rounded to bf16: 256 + 1 + 1.
TEST(CommExact, SixteenBitSumsRoundOnce) {
  run_ranks(3, [](comm::World& world) {
    std::vector<BF16> x(100, BF16(world.rank() == 0 ? 256.0f : 1.0f));
    comm::Options options;
    options.algorithm = Algorithm::Direct;
    world.group()
        .all_reduce(comm::Buf(x.data(), 100, DType::BF16), comm::Buf(x.data(), 100, DType::BF16), ReduceOp::Sum,
                    options)
        .wait();
    for (BF16 value : x) EXPECT_EQ(258.0f, static_cast<float>(value));
  });
}

}  // namespace
}  // namespace sixfold::test
