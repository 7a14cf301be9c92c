// How ranks wait: doorbells by themselves, and what long waits cost and lose.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <random>
#include <thread>

#include "runtime/comm/host/progress.h"
#include "tests/harness.h"

namespace sixfold::test {
namespace {

using comm::Doorbell;

constexpr std::chrono::seconds kForever{50};  // the deadline comes before

TEST(Doorbells, WakeOtherProcesses) {
  const Deadline deadline(30);
  void* memory = mmap(nullptr, sizeof(Doorbell), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* bell = new (memory) Doorbell{};
  const pid_t child = fork();
  if (child == 0) {
    bell->prepare();
    _exit(bell->sleep(kForever) ? 0 : 1);
  }
  // A ring before the child sleeps is none; once it does, one is enough.
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    bell->ring();
    usleep(1000);
  }
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  munmap(memory, sizeof(Doorbell));
}

TEST(Doorbells, ARingAfterTheLastLookIsNotLost) {
  const Deadline deadline(30);
  Doorbell bell{};
  bell.ring();  // nobody sleeps: nothing to remember
  bell.prepare();
  EXPECT_FALSE(bell.sleep(std::chrono::microseconds(100)));
  bell.prepare();
  bell.ring();
  EXPECT_TRUE(bell.sleep(std::nullopt));
  bell.prepare();
  bell.cancel();
  bell.ring();
  bell.prepare();
  EXPECT_FALSE(bell.sleep(std::chrono::microseconds(100)));
}

double cpu_seconds_of_thread() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

comm::Buf buf(std::vector<float>& x) {
  return {x.data(), x.size(), DType::F32};
}

// A rank that waits half a second spins and yields for less than a millisecond, and sleeps for the rest.
TEST(Waiting, CostsLittle) {
  run_ranks(2, [](comm::World& world) {
    world.group().barrier();
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const double wall = comm::seconds_now(), cpu = cpu_seconds_of_thread();
    world.group().barrier();
    if (world.rank() == 1) return;
    EXPECT_LT(cpu_seconds_of_thread() - cpu, 0.25 * (comm::seconds_now() - wall));
    EXPECT_GT(world.wait_counts().sleeps, 0u);
  });
}

/// Lets rank 1 of two wait until rank 0 sleeps.
class Watch {
 public:
  void show(comm::World& world) {
    if (world.rank() == 0) world_ = &world;
  }
  /// After a barrier: until it has gone to sleep once more.
  void until_it_sleeps() const {
    const uint64_t before = world_.load()->wait_counts().sleeps;
    while (world_.load()->wait_counts().sleeps == before) std::this_thread::yield();
  }

 private:
  std::atomic<comm::World*> world_{nullptr};
};

constexpr int kRounds = 20;

// The peer ends the last sleep of each wait, but for one now and then: when the wait ends between two sleeps, or a ring
// is missed (doorbell.h). Without the rings of senders there are none for messages.
TEST(Waiting, EndsByTheDoorbell) {
  Watch watch;
  run_ranks(2, [&](comm::World& world) {
    watch.show(world);
    std::vector<float> x(4, 1.0f);
    for (int round = 0; round < kRounds; ++round) {
      world.group().barrier();
      if (world.rank() == 1) watch.until_it_sleeps();
      if (round % 2 == 0) {
        world.group().all_reduce(buf(x), buf(x), ReduceOp::Max).wait();
      } else if (world.rank() == 0) {
        world.group().recv(buf(x), 1).wait();
      } else {
        world.group().send(buf(x), 0).wait();
      }
    }
    if (world.rank() == 0) {
      EXPECT_GE(world.wait_counts().woken, static_cast<uint64_t>(3 * kRounds / 4));
    }
  });
}

// A sender that waits for the receiver to free a slot sleeps as well, and is woken.
TEST(Waiting, EndsWhenSlotsAreFree) {
  comm::WorldOptions options;
  options.links = {.num_slots = 2, .slot_bytes = 64};
  Watch watch;
  run_ranks(
      2,
      [&](comm::World& world) {
        watch.show(world);
        std::vector<float> x(1000, 3.0f);
        for (int round = 0; round < kRounds; ++round) {
          world.group().barrier();
          if (world.rank() == 0) {
            world.group().send(buf(x), 1).wait();
          } else {
            watch.until_it_sleeps();
            world.group().recv(buf(x), 0).wait();
          }
        }
        if (world.rank() == 0) {
          EXPECT_GE(world.wait_counts().woken, static_cast<uint64_t>(3 * kRounds / 4));
        }
      },
      options);
}

// Ranks that come late at random, over two groups: whatever they wait for, and however they wait by then, it comes.
void dawdle_and_check(comm::ProgressThreadUse progress_thread) {
  comm::WorldOptions options;
  options.progress_thread = progress_thread;
  options.links = {.num_slots = 2, .slot_bytes = 64};
  run_ranks(
      3,
      [](comm::World& world) {
        comm::Communicator other = world.group().split(0, -world.rank());
        std::mt19937 random(static_cast<unsigned>(world.rank()));
        const int next = (world.rank() + 1) % 3, previous = (world.rank() + 2) % 3;
        for (int round = 0; round < 300; ++round) {
          const auto dawdle = [&] {  // not at all, within the spins, the yields, or the sleeps
            const unsigned choice = random() % 8;
            if (choice > 3) return;
            std::this_thread::sleep_for(std::chrono::microseconds(choice * choice * 300));
          };
          const auto value = static_cast<float>(round % 100 + world.rank());
          std::vector<float> a(77, value), b(77, value), out(40, value), in(40);
          dawdle();
          comm::Work first = world.group().all_reduce(buf(a), buf(a), ReduceOp::Sum);
          dawdle();
          comm::Work second = other.all_reduce(buf(b), buf(b), ReduceOp::Max);
          const comm::P2p transfers[2] = {{comm::P2p::Kind::Send, buf(out), next, {}},
                                          {comm::P2p::Kind::Recv, buf(in), previous, {}}};
          comm::Work third = world.group().batch(transfers);
          if (random() % 2 == 0) second.wait();
          third.wait();
          first.wait();
          second.wait();
          const auto base = static_cast<float>(round % 100);
          ASSERT_EQ(a[76], 3 * base + 3);
          ASSERT_EQ(b[76], base + 2);
          ASSERT_EQ(in[39], base + static_cast<float>(previous));
        }
      },
      options);
}

TEST(Waiting, LosesNothing) {
  dawdle_and_check(comm::ProgressThreadUse::Off);
}

TEST(Waiting, LosesNothingBesideProgressThreads) {
  dawdle_and_check(comm::ProgressThreadUse::On);
}

}  // namespace
}  // namespace sixfold::test
