// Blocks of different size: all-gather and reduce-scatter with counts per rank, all-to-all with counts per peer.
#include <numeric>

#include "tests/harness.h"

namespace sixfold::test {
namespace {

using comm::Algorithm;
using comm::Primitive;

comm::WorldOptions small_slots(bool in_place, const std::string& topology = "") {
  comm::WorldOptions options;
  options.links.slot_bytes = 64;
  options.links.num_slots = 3;
  options.links.min_in_place_bytes = in_place ? 64 : SIZE_MAX;
  options.links.min_lend_bytes = 64;
  options.timeout_s = 20;
  options.topology = topology;
  return options;
}

/// counts[r]: zero for some ranks, else up to a few slots.
std::vector<size_t> table_of(int size, unsigned seed) {
  std::vector<size_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back((static_cast<unsigned>(r) * 7 + seed * 5) % 4 * 37 + seed % 2);
  return counts;
}
size_t total(const std::vector<size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}
int32_t value(int rank, size_t i) {
  return rank * 1000 + static_cast<int32_t>(i);
}

Tensor tensor(comm::World& world, size_t count) {
  return Tensor::zeros({static_cast<int64_t>(count)}, DType::I32, world.memory(), Category::Communication);
}

comm::Options with(Algorithm algorithm) {
  comm::Options options;
  options.algorithm = algorithm;
  return options;
}

template <typename F>
void for_each_algorithm(const comm::World& world, Primitive primitive, F&& f) {
  f(Algorithm::Auto);
  for (Algorithm algorithm : comm::algorithms_of(primitive, &world.topology())) {
    if (comm::supports_counts(primitive, algorithm)) f(algorithm);
  }
}

void gather_and_check(comm::World& world, const std::vector<size_t>& counts, bool in_place, Algorithm algorithm) {
  const size_t rank = static_cast<size_t>(world.rank()), mine = counts[rank];
  const Tensor out = tensor(world, total(counts));
  const size_t begin = total({counts.begin(), counts.begin() + world.rank()});
  const Tensor in =
      in_place ? out.slice(static_cast<int64_t>(begin), {static_cast<int64_t>(mine)}) : tensor(world, mine);
  for (size_t i = 0; i < mine; ++i) in.data<int32_t>()[i] = value(world.rank(), i);
  world.group().all_gather(in, out, counts, with(algorithm)).wait();
  size_t element = 0;
  for (int r = 0; r < world.size(); ++r) {
    for (size_t i = 0; i < counts[static_cast<size_t>(r)]; ++i, ++element) {
      ASSERT_EQ(out.data<int32_t>()[element], value(r, i)) << comm::algorithm_name(algorithm);
    }
  }
}

void scatter_and_check(comm::World& world, const std::vector<size_t>& counts, bool in_place, Algorithm algorithm) {
  const size_t mine = counts[static_cast<size_t>(world.rank())];
  const size_t begin = total({counts.begin(), counts.begin() + world.rank()});
  const Tensor in = tensor(world, total(counts));
  const Tensor out =
      in_place ? in.slice(static_cast<int64_t>(begin), {static_cast<int64_t>(mine)}) : tensor(world, mine);
  for (size_t i = 0; i < total(counts); ++i) in.data<int32_t>()[i] = value(world.rank(), i);
  world.group().reduce_scatter(in, out, counts, ReduceOp::Sum, with(algorithm)).wait();
  const int n = world.size();
  for (size_t i = 0; i < mine; ++i) {
    const int32_t wanted = 1000 * n * (n - 1) / 2 + n * static_cast<int32_t>(begin + i);
    ASSERT_EQ(out.data<int32_t>()[i], wanted) << comm::algorithm_name(algorithm);
  }
}

/// What r sends to p.
size_t sent(int r, int p, unsigned seed) {
  return (static_cast<unsigned>(r * 5 + p * 3) + seed) % 4 * 29;
}

void exchange_and_check(comm::World& world, unsigned seed, Algorithm algorithm) {
  const int n = world.size(), rank = world.rank();
  std::vector<size_t> to, from;
  for (int p = 0; p < n; ++p) to.push_back(sent(rank, p, seed)), from.push_back(sent(p, rank, seed));
  const Tensor in = tensor(world, total(to)), out = tensor(world, total(from));
  size_t element = 0;
  for (int p = 0; p < n; ++p) {
    for (size_t i = 0; i < to[static_cast<size_t>(p)]; ++i) in.data<int32_t>()[element++] = value(rank * 100 + p, i);
  }
  world.group().all_to_all(in, out, to, from, with(algorithm)).wait();
  element = 0;
  for (int p = 0; p < n; ++p) {
    for (size_t i = 0; i < from[static_cast<size_t>(p)]; ++i) {
      ASSERT_EQ(out.data<int32_t>()[element++], value(p * 100 + rank, i)) << comm::algorithm_name(algorithm);
    }
  }
}

class Uneven : public testing::TestWithParam<int> {};

TEST_P(Uneven, IsExact) {
  for (bool in_place_links : {false, true}) {
    for (const std::string& topology : {std::string(), std::to_string(GetParam()) + "x1"}) {
      run_ranks(
          GetParam(),
          [](comm::World& world) {
            for (unsigned seed = 0; seed < 5; ++seed) {
              const std::vector<size_t> counts = table_of(world.size(), seed);
              for (bool in_place : {false, true}) {
                for_each_algorithm(world, Primitive::AllGather,
                                   [&](Algorithm a) { gather_and_check(world, counts, in_place, a); });
                for_each_algorithm(world, Primitive::ReduceScatter,
                                   [&](Algorithm a) { scatter_and_check(world, counts, in_place, a); });
              }
              for_each_algorithm(world, Primitive::AllToAll, [&](Algorithm a) { exchange_and_check(world, seed, a); });
            }
          },
          small_slots(in_place_links, topology));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Uneven, testing::Values(1, 2, 3, 4, 5, 8));

TEST(UnevenAllToAll, EverythingZero) {
  run_ranks(3, [](comm::World& world) {
    const std::vector<size_t> none(3, 0);
    world.group().all_to_all({nullptr, 0, DType::F32}, {nullptr, 0, DType::F32}, none, none).wait();
  });
}

/// The text of the error that `body` ends with.
std::string error_of(int num_ranks, const std::function<void(comm::World&)>& body) {
  comm::WorldOptions options;
  options.timeout_s = 10;
  try {
    run_ranks(num_ranks, body, options, 20);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Rank 1 expects 5 elements of rank 0, which sends 4; or none of them, which no message would show.
TEST(UnevenAllToAll, TablesThatAreNoTransposes) {
  for (size_t expected : {size_t{5}, size_t{0}}) {
    const std::string error = error_of(3, [expected](comm::World& world) {
      std::vector<size_t> to(3, 4), from(3, 4);
      if (world.rank() == 1) from[0] = expected;
      const Tensor in = tensor(world, total(to)), out = tensor(world, total(from));
      world.group().all_to_all(in, out, to, from).wait();
      world.group().barrier();
    });
    EXPECT_NE(error.find("rank 1:"), std::string::npos) << error;
    EXPECT_NE(error.find("rank 0 of the group sends 4 elements, this rank expects " + std::to_string(expected)),
              std::string::npos)
        << error;
  }
}

TEST(UnevenAllGather, TablesThatDiffer) {
  const std::string error = error_of(2, [](comm::World& world) {
    // The same own counts and the same largest one: only the table tells.
    const std::vector<size_t> counts = {300, world.rank() == 0 ? size_t{200} : size_t{300}};
    const Tensor in = tensor(world, counts[static_cast<size_t>(world.rank())]), out = tensor(world, total(counts));
    world.group().all_gather(in, out, counts).wait();
    world.group().barrier();
  });
  EXPECT_NE(error.find("all_gather #0"), std::string::npos) << error;
}

// Refused once the exchange of counts is under way: its buffers live until it is done, late as the other rank may be.
TEST(UnevenAllToAll, RefusedAfterTheCountsWereSent) {
  run_ranks(2, [](comm::World& world) {
    const std::vector<size_t> counts = {4, 4};
    const Tensor in = tensor(world, 8), out = tensor(world, 8);
    for (int round = 0; round < 20; ++round) {
      if (world.rank() == round % 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      EXPECT_THROW(world.group().all_to_all(in, out, counts, counts, with(Algorithm::Hierarchical)), ConfigError);
    }
    world.group().barrier();
  });
}

TEST(UnevenCollectives, RefusedByName) {
  run_ranks(2, [](comm::World& world) {
    const Tensor a = tensor(world, 4), b = tensor(world, 8);
    comm::Communicator& group = world.group();
    EXPECT_THROW(group.all_gather(a, b, std::vector<size_t>{4}), ConfigError);
    EXPECT_THROW(group.all_gather(a, b, std::vector<size_t>{4, 5}), ConfigError);
    EXPECT_THROW(group.reduce_scatter(b, a, std::vector<size_t>{4, 3}, ReduceOp::Sum), ConfigError);
    EXPECT_THROW(group.reduce_scatter(b, a, std::vector<size_t>{4, 4}, ReduceOp::Avg), ConfigError);
    EXPECT_THROW(group.all_to_all(b, b, std::vector<size_t>{4, 4}, std::vector<size_t>{4, 4}), ConfigError);
    EXPECT_THROW(group.all_to_all(b, a, std::vector<size_t>{4, 4}, std::vector<size_t>{4, 4}), ConfigError);
    EXPECT_THROW(group.all_gather(a, b, std::vector<size_t>{4, 4}, with(Algorithm::Tree)), ConfigError);
    group.barrier();
  });
}

}  // namespace
}  // namespace sixfold::test
