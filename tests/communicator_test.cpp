// What a Communicator promises beside the numbers: order, independence, split, point-to-point, mismatches named,
// buffers free after wait, no hang.
#include <atomic>
#include <cmath>
#include <thread>

#include "runtime/comm/host/progress.h"
#include "tests/collective_cases.h"
#include "tests/harness.h"

namespace sixfold::test {
namespace {

using comm::Algorithm;
using comm::Primitive;

comm::Options with(Algorithm algorithm) {
  comm::Options options;
  options.algorithm = algorithm;
  return options;
}

comm::Buf buf(std::vector<float>& x) {
  return {x.data(), x.size(), DType::F32};
}

// Runs ranks that are expected to disagree; returns each rank's error text.
std::vector<std::string> errors_of(int num_ranks, const std::function<void(comm::World&)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(num_ranks));
  comm::WorldOptions options;
  options.timeout_s = 10;
  const double start = comm::seconds_now();
  EXPECT_THROW(run_ranks(
                   num_ranks,
                   [&](comm::World& world) {
                     try {
                       body(world);
                     } catch (const CommError& error) {
                       errors[static_cast<size_t>(world.rank())] = error.what();
                       throw;
                     }
                   },
                   options),
               CommError);
  EXPECT_LT(comm::seconds_now() - start, 5.0);
  return errors;
}

void expect_all_name(const std::vector<std::string>& errors, const std::vector<std::string>& words) {
  for (const std::string& error : errors) {
    for (const std::string& word : words) EXPECT_NE(error.find(word), std::string::npos) << word << " in: " << error;
  }
}

TEST(World, RanksOfAHostShareRegions) {
  run_ranks(3, [](comm::World& world) {
    EXPECT_EQ(world.hosts().ranks_of(0), (std::vector<int>{0, 1, 2}));
    const auto first = world.share(64), second = world.share(64);
    first->data()[world.rank()] = static_cast<std::byte>(world.rank() + 1);
    world.group().barrier();
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(first->data()[i], static_cast<std::byte>(i + 1));
      EXPECT_EQ(second->data()[i], std::byte{0});
    }
    world.group().barrier();
  });
}

TEST(Mismatch, OtherCount) {
  for (Algorithm algorithm : {Algorithm::Ring, Algorithm::Tree, Algorithm::Direct}) {
    expect_all_name(errors_of(4,
                              [algorithm](comm::World& world) {
                                std::vector<float> x(world.rank() == 2 ? 409598 : 409600, 1.0f);
                                world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum, with(algorithm)).wait();
                                world.group().barrier();
                              }),
                    {"#0", "all_reduce", "409598", "409600", "f32"});
  }
}

TEST(Mismatch, OtherPrimitive) {
  expect_all_name(errors_of(4,
                            [](comm::World& world) {
                              std::vector<float> x(1000, 1.0f);
                              world.group().barrier();
                              if (world.rank() == 1) {
                                world.group().broadcast(buf(x), 1).wait();
                              } else {
                                world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum).wait();
                              }
                              world.group().barrier();
                            }),
                  {"#1", "all_reduce", "broadcast", "1000"});
}

TEST(Mismatch, OtherDtypeOpOrRoot) {
  expect_all_name(errors_of(4,
                            [](comm::World& world) {
                              std::vector<float> x(1000, 1.0f);
                              const comm::Buf b(x.data(), 1000, world.rank() == 3 ? DType::I32 : DType::F32);
                              world.group().all_reduce(b, b, ReduceOp::Sum).wait();
                              world.group().barrier();
                            }),
                  {"#0", "f32", "i32"});
  expect_all_name(
      errors_of(2,
                [](comm::World& world) {
                  std::vector<float> x(10, 1.0f);
                  world.group().all_reduce(buf(x), buf(x), world.rank() == 0 ? ReduceOp::Sum : ReduceOp::Max).wait();
                  world.group().barrier();
                }),
      {"#0", "sum", "max"});
  expect_all_name(errors_of(3,
                            [](comm::World& world) {
                              std::vector<float> x(10, 1.0f);
                              world.group().broadcast(buf(x), world.rank() == 0 ? 0 : 1).wait();
                              world.group().barrier();
                            }),
                  {"#0", "root 0", "root 1"});
}

TEST(Mismatch, MessageOfAnotherSize) {
  expect_all_name(errors_of(2,
                            [](comm::World& world) {
                              std::vector<float> x(world.rank() == 0 ? 7 : 8);
                              if (world.rank() == 0) {
                                world.group().send(buf(x), 1).wait();
                              } else {
                                world.group().recv(buf(x), 0).wait();
                              }
                              world.group().barrier();
                            }),
                  {"count 7", "count 8"});
}

TEST(Deadline, NamesTheRankThatNeverCame) {
  comm::WorldOptions options;
  options.timeout_s = 1;
  std::string error;
  EXPECT_THROW(run_ranks(
                   3,
                   [&](comm::World& world) {
                     if (world.rank() == 1) {
                       std::this_thread::sleep_for(std::chrono::milliseconds(2500));
                       return;
                     }
                     std::vector<float> x(10);
                     comm::Options tagged;
                     tagged.tag = "dp.grads";
                     try {
                       world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum, tagged).wait();
                     } catch (const CommError& e) {
                       if (world.rank() == 0) error = e.what();
                       throw;
                     }
                   },
                   options),
               CommError);
  for (const char* word : {"have not entered it: 1", "dp.grads", "all_reduce #0", "--timeout"}) {
    EXPECT_NE(error.find(word), std::string::npos) << error;
  }
}

TEST(Failure, OneRankStopsAll) {
  try {
    run_ranks(4, [](comm::World& world) {
      if (world.rank() == 2) throw std::runtime_error("disk full");
      world.group().barrier();
    });
    FAIL() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "disk full");
  }
}

// The failing rank holds a group with an operation under way that nobody else will ever enter.
TEST(Failure, DoesNotWaitForOperationsInFlight) {
  Deadline deadline(20, "a failing rank with an operation in flight");
  std::vector<float> x(100000);
  EXPECT_THROW(run_ranks(3,
                         [&](comm::World& world) {
                           comm::Communicator half = world.group().split(0, 0);
                           if (world.rank() == 1) {
                             half.all_reduce(buf(x), buf(x), ReduceOp::Sum);
                             throw std::runtime_error("disk full");
                           }
                           world.group().barrier();
                         }),
               std::runtime_error);
}

// Rank 3 is slow to read; the others overwrite their input as soon as wait() returns. Slices go through slots, or are
// read and written in the peers' buffers.
TEST(Buffers, AreFreeAfterWait) {
  for (size_t min_in_place_bytes : {size_t{64}, SIZE_MAX}) {
    for (Algorithm algorithm : {Algorithm::Ring, Algorithm::Tree, Algorithm::Direct}) {
      std::atomic<int> num_wrong{0};
      comm::WorldOptions options;
      options.links.slot_bytes = 1024;
      options.links.min_in_place_bytes = options.links.min_lend_bytes = min_in_place_bytes;
      run_ranks(
          4,
          [&](comm::World& world) {
            const Tensor in = Tensor::empty({3000}, DType::F32, world.memory(), Category::Communication);
            const Tensor out = Tensor::empty({3000}, DType::F32, world.memory(), Category::Communication);
            for (int round = 0; round < 200; ++round) {
              std::fill_n(in.data<float>(), 3000, 1.0f);
              comm::Work work = world.group().all_reduce(in, out, ReduceOp::Sum, with(algorithm));
              if (world.rank() == 3) std::this_thread::sleep_for(std::chrono::milliseconds(round % 20 == 0 ? 50 : 1));
              work.wait();
              std::fill_n(in.data<float>(), 3000, std::nanf(""));
              for (int i = 0; i < 3000; ++i) num_wrong += out.data<float>()[i] != 4.0f;
            }
          },
          options);
      EXPECT_EQ(num_wrong, 0);
    }
  }
}

// A broadcast is issued before its buffer is free of the one before it: it may not land there yet.
TEST(Buffers, ServeOneOperationAfterTheOther) {
  comm::WorldOptions options;
  options.links.slot_bytes = 64;
  options.links.min_in_place_bytes = options.links.min_lend_bytes = 64;
  run_ranks(
      3,
      [](comm::World& world) {
        const Tensor x = Tensor::empty({1000}, DType::I32, world.memory(), Category::Communication);
        for (int round = 0; round < 100; ++round) {
          std::fill_n(x.data<int32_t>(), 1000, world.rank() + round);
          if (world.rank() == round % 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          world.group().all_reduce(x, x, ReduceOp::Sum);
          world.group().broadcast(x, round % 3);
          world.group().all_reduce(x, x, ReduceOp::Max).wait();
          EXPECT_EQ(x.data<int32_t>()[999], 3 + 3 * round);
        }
      },
      options);
}

// Longer than the slots hold: the receiver reads where the sender has it, which is done only then.
TEST(PointToPoint, LongSendsAreReadInPlace) {
  comm::WorldOptions options;
  options.links.slot_bytes = options.links.min_lend_bytes = 64;
  run_ranks(
      2,
      [](comm::World& world) {
        const Tensor x = Tensor::empty({5000}, DType::I32, world.memory(), Category::Communication);
        for (int round = 0; round < 50; ++round) {
          std::fill_n(x.data<int32_t>(), 5000, world.rank() == 0 ? round : -1);
          if (world.rank() == 0) {
            world.group().send(x, 1).wait();
            std::fill_n(x.data<int32_t>(), 5000, -2);
          } else {
            world.group().recv(x, 0).wait();
            for (int i = 0; i < 5000; ++i) ASSERT_EQ(x.data<int32_t>()[i], round);
          }
        }
      },
      options);
}

TEST(Order, ManyOutstandingOperations) {
  run_ranks(3, [](comm::World& world) {
    std::vector<std::vector<float>> x(40, std::vector<float>(777));
    std::vector<comm::Work> works;
    for (size_t i = 0; i < x.size(); ++i) {
      std::fill(x[i].begin(), x[i].end(), static_cast<float>(i) + static_cast<float>(world.rank()));
      works.push_back(world.group().all_reduce(buf(x[i]), buf(x[i]), ReduceOp::Sum));
    }
    for (size_t i = x.size(); i-- > 0;) {  // waited for in any order
      works[i].wait();
      EXPECT_EQ(x[i][776], 3 * static_cast<float>(i) + 3);
    }
  });
}

TEST(Order, ADroppedWorkIsCarriedOut) {
  run_ranks(2, [](comm::World& world) {
    std::vector<float> x(100000, 1.0f);
    world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum);
    world.group().barrier();
    EXPECT_EQ(x[99999], 2.0f);
  });
}

// Two groups of the same ranks, used in opposite order: a wait in one must drive the other.
TEST(Groups, NoCyclicWait) {
  run_ranks(2, [](comm::World& world) {
    comm::Communicator a = world.group().split(0, 0), b = world.group().split(0, 0);
    std::vector<float> x(100000, 1.0f), y(100000, 1.0f);
    comm::Communicator& first = world.rank() == 0 ? a : b;
    comm::Communicator& second = world.rank() == 0 ? b : a;
    comm::Work on_first = first.all_reduce(buf(x), buf(x), ReduceOp::Sum);
    comm::Work on_second = second.all_reduce(buf(y), buf(y), ReduceOp::Sum);
    on_first.wait();
    on_second.wait();
    EXPECT_EQ(x[0] + y[99999], 4.0f);
  });
}

TEST(Groups, SplitByColorAndKey) {
  run_ranks(6, [](comm::World& world) {
    // Even and odd ranks, in reverse order of rank.
    comm::Communicator half = world.group().split(world.rank() % 2, -world.rank());
    EXPECT_EQ(half.size(), 3);
    EXPECT_EQ(half.rank(), (5 - world.rank()) / 2);
    EXPECT_EQ(half.world_rank(0), 4 + world.rank() % 2);
    std::vector<float> x = {static_cast<float>(world.rank())};
    half.all_reduce(buf(x), buf(x), ReduceOp::Sum).wait();
    EXPECT_EQ(x[0], world.rank() % 2 == 0 ? 6.0f : 9.0f);
    comm::Communicator alone = half.split(-1, 0);
    EXPECT_EQ(alone.size(), 1);
    alone.barrier();
    // Groups of groups, made and dropped again and again.
    for (int i = 0; i < 20; ++i) {
      comm::Communicator pair = half.split(half.rank() / 2, 0);
      pair.barrier();
    }
  });
}

TEST(PointToPoint, ExchangeAndSelf) {
  run_ranks(3, [](comm::World& world) {
    const int n = world.size(), next = (world.rank() + 1) % n, previous = (world.rank() + n - 1) % n;
    for (size_t count : {size_t{0}, size_t{1}, size_t{100}, size_t{300000}}) {
      std::vector<float> out(count, static_cast<float>(world.rank())), in(count, -1.0f), self(count, -1.0f);
      std::vector<comm::P2p> transfers(4);
      transfers[0] = {comm::P2p::Kind::Send, buf(out), next, {}};
      transfers[1] = {comm::P2p::Kind::Recv, buf(in), previous, {}};
      transfers[2] = {comm::P2p::Kind::Send, buf(out), world.rank(), {}};
      transfers[3] = {comm::P2p::Kind::Recv, buf(self), world.rank(), {}};
      world.group().batch(transfers).wait();
      EXPECT_EQ(in, std::vector<float>(count, static_cast<float>(previous)));
      EXPECT_EQ(self, out);
    }
  });
}

TEST(PointToPoint, LanesAreIndependentAndInOrder) {
  run_ranks(2, [](comm::World& world) {
    comm::Options lane1;
    lane1.lane = 1;
    std::vector<float> a(50000, 1.0f), b(50000, 2.0f), c(50000, 3.0f);
    if (world.rank() == 0) {
      std::vector<comm::Work> works = {world.group().send(buf(a), 1), world.group().send(buf(b), 1),
                                       world.group().send(buf(c), 1, lane1)};
      for (comm::Work& work : works) work.wait();
    } else {
      std::vector<float> x(50000), y(50000), z(50000);
      world.group().recv(buf(z), 0, lane1).wait();  // although issued last on the other side
      world.group().recv(buf(x), 0).wait();
      world.group().recv(buf(y), 0).wait();
      EXPECT_EQ(x, a);
      EXPECT_EQ(y, b);
      EXPECT_EQ(z, c);
    }
  });
}

TEST(Options, DeterministicRefusesRingAndTree) {
  comm::WorldOptions options;
  options.num_ranks = 2;
  options.deterministic = true;
  options.algorithm = Algorithm::Ring;
  EXPECT_THROW(comm::run_world(options, [](comm::World&) {}), ConfigError);
  options.algorithm = Algorithm::Direct;
  EXPECT_NO_THROW(comm::run_world(options, [](comm::World&) {}));
  options.num_ranks = -1;
  EXPECT_THROW(comm::run_world(options, [](comm::World&) {}), ConfigError);
}

TEST(Options, DeterministicBitsDoNotDependOnSlots) {
  std::vector<std::vector<float>> results;
  for (size_t slot_bytes : {size_t{64}, size_t{192}, size_t{65536}}) {
    comm::WorldOptions options;
    options.deterministic = true;
    options.links.slot_bytes = slot_bytes;
    options.links.num_slots = slot_bytes == 192 ? 2 : 4;
    run_ranks(
        4,
        [&](comm::World& world) {
          std::vector<float> x(5003);
          for (size_t i = 0; i < x.size(); ++i) {
            x[i] = std::sin(static_cast<float>(i) * 0.37f + static_cast<float>(world.rank())) *
                   std::pow(10.0f, static_cast<float>(world.rank()));
          }
          world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum).wait();
          if (world.rank() == 0) results.push_back(x);
        },
        options);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace sixfold::test
