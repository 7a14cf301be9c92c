// The all-reduce with the flag in the data: the kernel's own code, threads as blocks of several ranks.
#include "runtime/comm/cuda/low_latency.h"

#include <thread>

#include "tests/harness.h"
#include "tests/host_peer.h"

namespace sixfold::test {
namespace {

using comm::LowLatencyArguments;

/// Areas of words of all ranks, which live on from one operation to the next.
class Words {
 public:
  explicit Words(size_t num_ranks) : num_ranks_(num_ranks) {
    for (size_t rank = 0; rank < num_ranks; ++rank) {
      areas_.push_back(comm::SharedRegion::anonymous(2 * comm::low_latency_area_bytes(num_ranks)));
    }
  }

  /// Operation `number` as `rank` launches it.
  template <typename T>
  void launch(size_t rank, uint32_t number, const T* in, T* out, size_t count, ReduceOp op, bool two_shots) {
    LowLatencyArguments a;
    a.input = in;
    a.output = out;
    for (size_t other = 0; other < num_ranks_; ++other) {
      a.words[other] =
          reinterpret_cast<uint64_t*>(areas_[other]->data() + number % 2 * comm::low_latency_area_bytes(num_ranks_));
    }
    a.count = static_cast<uint32_t>(count);
    a.rank = static_cast<uint32_t>(rank);
    a.num_ranks = static_cast<uint32_t>(num_ranks_);
    a.number = number;
    a.two_shots = two_shots;
    a.aligned = comm::is_aligned_to_pack(in) && comm::is_aligned_to_pack(out);
    a.scale = op == ReduceOp::Avg ? 1.0f / static_cast<float>(num_ranks_) : 1.0f;
    constexpr uint32_t kBlocks = 2;
    run_blocks(kBlocks, [&](int block) {
      PeerPlatform platform(control_, a.rank);
      with_op(op, [&]<ReduceOp kernel_op>() {
        comm::LowLatencyRun<T, kernel_op, PeerPlatform> kernel(platform, a, static_cast<uint32_t>(block), kBlocks);
        EXPECT_TRUE(kernel.run());
      });
    });
  }

  /// A case of collective_cases.h; "" or what is wrong.
  template <typename T>
  std::string run_case(const CollectiveCase& c, bool two_shots) {
    Memory memory;
    std::vector<CaseBuffers<T>> ranks;
    const auto size = static_cast<int>(num_ranks_);
    for (int rank = 0; rank < size; ++rank) ranks.emplace_back(memory, c, rank, size);
    ++number_;
    run_blocks(size, [&](int rank) {
      const CaseBuffers<T>& own = ranks[static_cast<size_t>(rank)];
      launch<T>(static_cast<size_t>(rank), number_, own.in, own.out, c.count, c.op, two_shots);
    });
    for (int rank = 0; rank < size; ++rank) {
      const std::string wrong = ranks[static_cast<size_t>(rank)].check(c, rank, size);
      if (!wrong.empty()) return wrong + (two_shots ? " in two shots" : " in one shot");
    }
    return "";
  }

 private:
  size_t num_ranks_;
  std::vector<std::shared_ptr<comm::SharedRegion>> areas_;
  uint32_t number_ = 0;
  HostKernelControl control_;
};

class LowLatency : public testing::TestWithParam<int> {};

// Fewer elements than ranks, odd numbers, whole packs and not, shifted off them, in place; every dtype and op.
TEST_P(LowLatency, EveryDtypeOpAndOddSize) {
  const Deadline deadline(60);
#ifdef __SANITIZE_THREAD__  // makes threads slow to start: what is cut into most packs, and one that has no whole one
  const std::vector<size_t> counts = {1, 203};
#else
  const std::vector<size_t> counts = {1, 3, 64, 1003};
#endif
  Words words(static_cast<size_t>(GetParam()));
  size_t turn = 0;
  for (DType dtype : kAllDTypes) {
    for (ReduceOp op : kAllReduceOps) {
      if (!kernels::reduce_supported(dtype, op)) continue;
      for (size_t count : counts) {
        CollectiveCase c{comm::Primitive::AllReduce, comm::Algorithm::Direct, count, dtype, op};
        c.in_place = ++turn % 2 == 0;
        c.shift = turn % 3 == 0 ? 1 : 0;
        for (bool two_shots : {false, true}) {
          EXPECT_EQ(dispatch(dtype, [&](auto element) { return words.run_case<decltype(element)>(c, two_shots); }), "");
        }
      }
    }
  }
}

#ifndef __SANITIZE_THREAD__  // has nothing to see in lengths
// The longest messages that an area is made for, and one element less.
TEST_P(LowLatency, TheLongestFit) {
  const Deadline deadline(60);
  Words words(static_cast<size_t>(GetParam()));
  for (size_t less : {size_t{0}, size_t{1}}) {
    CollectiveCase c{comm::Primitive::AllReduce, comm::Algorithm::Direct, comm::kOneShotBytes / 4 - less};
    EXPECT_EQ(words.run_case<float>(c, false), "");
    c.count = comm::kTwoShotBytes / 4 - less;
    EXPECT_EQ(words.run_case<float>(c, true), "");
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(Ranks, LowLatency, testing::Range(1, 9));

// Sums of reals in rank order, rounded once: what one rank alone would get. Each rank launches one operation after the
// other, long ones and short ones, without waiting for the other ranks, on areas that hold the words of those before.
TEST(LowLatencyBits, AreThoseOfRankOrderOverManyOperations) {
  const Deadline deadline(60);
  constexpr size_t kRanks = 3, kRounds = 100;
  const auto count_of = [](size_t round) { return round * 37 % 101 + 1; };
  const auto value_of = [](size_t rank, size_t round, size_t i) {
    const CollectiveCase reals{.dtype = DType::BF16, .whole = false};
    return static_cast<float>(input_value(reals, static_cast<int>(rank + round), i));
  };
  Words words(kRanks);
  run_blocks(kRanks, [&](int own) {
    const auto rank = static_cast<size_t>(own);
    for (size_t round = 0; round < kRounds; ++round) {
      std::vector<BF16> x;
      for (size_t i = 0; i < count_of(round); ++i) x.emplace_back(value_of(rank, round, i));
      words.launch<BF16>(rank, static_cast<uint32_t>(round + 1), x.data(), x.data(), x.size(), ReduceOp::Sum,
                         round % 3 == 1);
      for (size_t i = 0; i < x.size(); ++i) {
        const float sum = value_of(0, round, i) + value_of(1, round, i) + value_of(2, round, i);
        EXPECT_EQ(static_cast<float>(x[i]), static_cast<float>(BF16(sum))) << "round " << round << " element " << i;
      }
    }
  });
}

// (N-1) S in one shot, 2(N-1)/N S in two.
TEST(LowLatencyBytes, AreThoseOfTheAlgorithm) {
  LowLatencyArguments a;
  a.num_ranks = 4;
  a.count = 1000;
  EXPECT_EQ(comm::low_latency_sent_bytes(a, 4), 12000u);
  a.two_shots = true;
  uint64_t all = 0;
  for (a.rank = 0; a.rank < 4; ++a.rank) all += comm::low_latency_sent_bytes(a, 4);
  EXPECT_EQ(all, 24000u);
}

}  // namespace
}  // namespace sixfold::test
