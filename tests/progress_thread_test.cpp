// The progress thread: operations end while their ranks compute, what fails meanwhile comes out of the next call, and
// all else is as without it.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>

#include "runtime/comm/host/progress.h"
#include "runtime/core/cores.h"
#include "tests/harness.h"
#include "tests/sanitized.h"

namespace sixfold::test {
namespace {

using comm::ProgressThreadUse;

comm::WorldOptions with(ProgressThreadUse use) {
  comm::WorldOptions options;
  options.progress_thread = use;
  return options;
}

comm::Buf buf(std::vector<float>& x) {
  return {x.data(), x.size(), DType::F32};
}

/// Some 10 ms of arithmetic.
void compute() {
  volatile float sum = 0;
  for (int i = 0; i < 5000000; ++i) sum = sum + 1.0f;
}

/// Whether all operations of the rank have ended so far. Looks at the table, and drives nothing.
bool is_done(comm::World& world) {
  for (const comm::CommRow& row : world.comm_table().rows()) {
    if (row.seconds == 0) return false;
  }
  return true;
}

// Far more than links hold, so that it takes many turns of both ranks.
constexpr size_t kManySlots = 1 << 20;

TEST(ProgressThread, EndsACollectiveWhileItsRanksCompute) {
  run_ranks(
      2,
      [](comm::World& world) {
        ASSERT_TRUE(world.has_progress_thread());
        comm::Communicator group = world.group().split(0, 0);
        world.comm_table().reset();
        std::vector<float> x(kManySlots, static_cast<float>(world.rank() + 1));
        comm::Work work = group.all_reduce(buf(x), buf(x), ReduceOp::Sum);
        do {
          compute();
        } while (!is_done(world));
        EXPECT_TRUE(work.test());
        EXPECT_EQ(x, std::vector<float>(kManySlots, 3.0f));
      },
      with(ProgressThreadUse::On));
}

TEST(ProgressThread, EndsMessagesWhileTheirRanksCompute) {
  run_ranks(
      2,
      [](comm::World& world) {
        world.group().barrier();
        world.comm_table().reset();
        std::vector<float> out(kManySlots, static_cast<float>(world.rank())), in(kManySlots);
        const int peer = 1 - world.rank();
        const comm::P2p transfers[2] = {{comm::P2p::Kind::Send, buf(out), peer, {}},
                                        {comm::P2p::Kind::Recv, buf(in), peer, {}}};
        comm::Work work = world.group().batch(transfers);
        do {
          compute();
        } while (!is_done(world));
        EXPECT_TRUE(work.test());
        EXPECT_EQ(in, std::vector<float>(kManySlots, static_cast<float>(peer)));
      },
      with(ProgressThreadUse::On));
}

// What the two tests above would see without the thread, whatever the time. Rank 1 starts when rank 0 has left the
// communication layer, so neither finds the other there.
TEST(ProgressThread, IsWhatEndsThem) {
  std::atomic<int> step{0};
  const auto pass = [&](int from) {
    while (step < from) std::this_thread::yield();
  };
  run_ranks(
      2,
      [&](comm::World& world) {
        ASSERT_FALSE(world.has_progress_thread());
        world.group().barrier();
        world.comm_table().reset();
        std::vector<float> x(kManySlots, 1.0f);
        pass(world.rank());
        comm::Work work = world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum);
        ++step;
        pass(2);
        compute();
        EXPECT_FALSE(is_done(world));
        ++step;
        pass(4);
        work.wait();
      },
      with(ProgressThreadUse::Off));
}

// Exposed is the time that the rank has spent inside calls, and what the thread does meanwhile is not.
TEST(ProgressThread, ExposesNothingButTheRanksOwnTime) {
  run_ranks(
      2,
      [](comm::World& world) {
        world.group().barrier();
        world.comm_table().reset();
        std::vector<float> x(kManySlots, 1.0f);
        double inside = -comm::seconds_now();
        comm::Work work = world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum, {.tag = "exposed"});
        inside += comm::seconds_now();
        compute();
        inside -= comm::seconds_now();
        work.wait();
        inside += comm::seconds_now();
        const std::vector<comm::CommRow> rows = world.comm_table().rows();
        ASSERT_EQ(rows.size(), 1u);
        EXPECT_GT(rows[0].exposed_seconds, 0);
        EXPECT_LE(rows[0].exposed_seconds, inside);
      },
      with(ProgressThreadUse::On));
}

/// `body` on both ranks; the text of the exception that comes out.
std::string error_of(const std::function<void(comm::World&)>& body) {
  try {
    run_ranks(2, body, with(ProgressThreadUse::On), 20);
    ADD_FAILURE() << "no exception";
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(ProgressThread, ThrowsWhatItFindsFromTheNextCall) {
  const std::string error = error_of([](comm::World& world) {
    std::vector<float> x(world.rank() == 0 ? 7 : 8);
    world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum);
    EXPECT_THROW(
        for (;;) {
          compute();
          world.progress();
        },
        CommError);
    EXPECT_THROW(world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum), CommError);
    world.group().barrier();
  });
  EXPECT_NE(error.find("count 7"), std::string::npos) << error;
  EXPECT_NE(error.find("count 8"), std::string::npos) << error;
}

TEST(ProgressThread, HearsOfFailuresElsewhere) {
  const std::string error = error_of([](comm::World& world) {
    world.group().barrier();
    if (world.rank() == 1) throw std::runtime_error("disk full");
    std::vector<float> x(10);
    comm::Work work = world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum);
    try {
      for (;;) {
        compute();
        world.progress();
      }
    } catch (const CommError& heard) {
      EXPECT_NE(std::string(heard.what()).find("because rank 1 failed: disk full"), std::string::npos) << heard.what();
    }
    EXPECT_THROW(work.wait(), CommError);
  });
  EXPECT_EQ(error, "disk full");
}

TEST(ProgressThread, LeavesDeadlinesToWaits) {
  comm::WorldOptions options = with(ProgressThreadUse::On);
  options.timeout_s = 0.5;
  std::string error;
  try {
    run_ranks(
        2,
        [](comm::World& world) {
          world.group().barrier();
          if (world.rank() == 1) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1700));
            return;
          }
          std::vector<float> x(10);
          comm::Work work = world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum, {.tag = "late"});
          std::this_thread::sleep_for(std::chrono::milliseconds(700));
          world.progress();  // no wait, no deadline
          work.wait();
        },
        options, 20);
    FAIL() << "no exception";
  } catch (const CommError& caught) {
    error = caught.what();
  }
  EXPECT_NE(error.find("all_reduce #1 (late) of group world: nothing moved for 0.5 s"), std::string::npos) << error;
}

TEST(ProgressThread, GroupsAndWorldsEndInAnyOrder) {
  for (int round = 0; round < 30; ++round) {
    std::vector<std::vector<float>> buffers(9, std::vector<float>(5000, 1.0f));  // outlive what is in flight
    run_ranks(
        3,
        [&](comm::World& world) {
          std::optional<comm::Communicator> groups[3];
          groups[0].emplace(world.group().split(0, 0));
          groups[1].emplace(world.group().split(0, -world.rank()));
          groups[2].emplace(groups[0]->split(0, 0));
          for (size_t i = 0; i < 3; ++i) {
            std::vector<float>& x = buffers[static_cast<size_t>(world.rank()) * 3 + i];
            groups[i]->all_reduce(buf(x), buf(x), ReduceOp::Sum);
          }
          for (int i = 0; i < 2; ++i) groups[(round + i) % 3].reset();
        },
        with(ProgressThreadUse::On));
    for (const std::vector<float>& x : buffers) ASSERT_EQ(x[4999], 3) << round;
  }
}

// Children that end by returning or by an exception, and end groups on the way; threads that fork are inside of
// nothing, but the progress thread may be anywhere.
TEST(ProgressThread, IsNotInForkedChildren) {
  // Known of both (llvm-project, pull requests 75290 and 96600).
  if (kSanitized) GTEST_SKIP() << "sanitizers older than LLVM 19's forget their own locks in fork: a child may hang";
  run_ranks(
      2,
      [](comm::World& world) {
        for (int round = 0; round < 20; ++round) {
          comm::Communicator group = world.group().split(0, 0);
          std::vector<float> x(kManySlots / 4, 1.0f);
          comm::Work work = group.all_reduce(buf(x), buf(x), ReduceOp::Sum);
          if (world.rank() == 0) {
            const pid_t child = fork();
            if (child == 0) {
              alarm(30);  // one that hangs does not stay
              if (round % 2 == 0) return;
              throw std::runtime_error("in a child");
            }
            int status = -1;
            EXPECT_EQ(waitpid(child, &status, 0), child);
            EXPECT_TRUE(WIFEXITED(status));
            EXPECT_EQ(WEXITSTATUS(status), round % 2);
          }
          work.wait();
          EXPECT_EQ(x.back(), 2);
        }
      },
      with(ProgressThreadUse::On));
}

/// What the process has used so far.
struct Usage {
  double wall_seconds = comm::seconds_now(), cpu_seconds = 0, num_sleeps = 0;

  Usage() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    num_sleeps = static_cast<double>(usage.ru_nvcsw);
  }
};

// A thread that has nothing to do is parked after some 30 ms, and one whose operation waits for others sleeps for a
// millisecond at a time; naps of 100 us would be ten times as many.
TEST(ProgressThread, CostsNothingWhenIdle) {
  for (const bool outstanding : {false, true}) {
    run_ranks(
        2,
        [outstanding](comm::World& world) {
          std::vector<float> x(10, 1.0f);
          world.group().barrier();
          comm::Work work;
          if (outstanding && world.rank() == 0) work = world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum);
          std::this_thread::sleep_for(std::chrono::milliseconds(200));
          const Usage before;
          std::this_thread::sleep_for(std::chrono::milliseconds(500));
          const Usage after;
          const double wall = after.wall_seconds - before.wall_seconds;
          EXPECT_LT(after.cpu_seconds - before.cpu_seconds, 0.25 * wall);
          EXPECT_LT(after.num_sleeps - before.num_sleeps, (outstanding ? 2000 : 200) * wall);
          std::this_thread::sleep_for(std::chrono::milliseconds(100));  // for the other rank to have looked
          if (outstanding && world.rank() == 1) work = world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum);
          work.wait();
          world.group().barrier();
        },
        with(ProgressThreadUse::On));
  }
}

TEST(ProgressThread, IsThereAsOptionsSay) {
  for (const ProgressThreadUse use : {ProgressThreadUse::Auto, ProgressThreadUse::On, ProgressThreadUse::Off}) {
    for (const int threads : {1, usable_cores()}) {
      comm::WorldOptions options = with(use);
      options.num_compute_threads = threads;
      run_ranks(
          2,
          [&](comm::World& world) {
            const bool cores = usable_cores() >= 2 * 2 * threads;
            EXPECT_EQ(world.has_progress_thread(),
                      use == ProgressThreadUse::On || (use == ProgressThreadUse::Auto && cores));
          },
          options);
    }
  }
  EXPECT_EQ(comm::parse_progress_thread("auto"), ProgressThreadUse::Auto);
  EXPECT_EQ(comm::parse_progress_thread("on"), ProgressThreadUse::On);
  EXPECT_EQ(comm::parse_progress_thread("off"), ProgressThreadUse::Off);
  EXPECT_THROW(comm::parse_progress_thread("maybe"), ConfigError);
}

}  // namespace
}  // namespace sixfold::test
