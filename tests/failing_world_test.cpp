// Worlds of threads that fail, or seem to: what the file of a failure holds; ranks that leave; sections that stop the
// clock; forked children.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/comm/host/progress.h"
#include "tests/harness.h"

namespace sixfold::test {
namespace {

std::string new_folder(const std::string& name) {
  const std::string folder = testing::TempDir() + "sixfold-" + name + "-" + std::to_string(getpid());
  std::filesystem::remove_all(folder);
  return folder;
}

nlohmann::json read_file(const std::string& folder) {
  std::ifstream file(folder + "/flight-recorder.json");
  return nlohmann::json::parse(file);  // throws where it does not parse
}

/// Runs ranks of which some fail; returns the text of the exception that comes out, and how long it all took.
struct Ended {
  std::string error;
  double seconds = 0;
};
Ended run_failing(int num_ranks, const std::function<void(comm::World&)>& body, comm::WorldOptions options = {}) {
  const double start = comm::seconds_now();
  Ended ended;
  try {
    run_ranks(num_ranks, body, options, 20);
    ADD_FAILURE() << "no exception";
  } catch (const std::exception& error) {
    ended.error = error.what();
  }
  ended.seconds = comm::seconds_now() - start;
  return ended;
}

comm::Work all_reduce(comm::Communicator& group, std::vector<float>& x, const std::string& tag) {
  comm::Options options;
  options.tag = tag;
  const comm::Buf buf(x.data(), x.size(), DType::F32);
  return group.all_reduce(buf, buf, ReduceOp::Sum, options);
}

const nlohmann::json& last_operation(const nlohmann::json& file, size_t rank) {
  return file.at("ranks").at(rank).at("operations").back();
}

TEST(FlightFile, TellsWhoNeverEnteredWhat) {
  comm::WorldOptions options;
  options.timeout_s = 1;
  options.flight_recorder_dir = new_folder("never/deeper");
  const Ended ended = run_failing(
      3,
      [](comm::World& world) {
        std::vector<float> x(10);
        all_reduce(world.group(), x, "first").wait();
        if (world.rank() == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(2500));
        } else {
          all_reduce(world.group(), x, "second").wait();
        }
      },
      options);
  EXPECT_NE(ended.error.find("all_reduce #1 (second) of group world"), std::string::npos) << ended.error;
  const nlohmann::json file = read_file(options.flight_recorder_dir);
  EXPECT_NE(file.at("reason").get<std::string>().find("have not entered it: 1"), std::string::npos);
  ASSERT_EQ(file.at("ranks").size(), 3u);
  double longest_wait_s = 0;  // of who gave up; the other may have come a little later
  for (size_t rank : {size_t{0}, size_t{2}}) {
    const nlohmann::json& last = last_operation(file, rank);
    EXPECT_EQ(last.at("sequence"), 1);
    EXPECT_EQ(last.at("tag"), "second");
    EXPECT_EQ(last.at("group"), "world");
    EXPECT_EQ(last.at("primitive"), "all_reduce");
    EXPECT_EQ(last.at("count"), 10);
    EXPECT_EQ(last.at("dtype"), "f32");
    EXPECT_EQ(last.at("op"), "sum");
    EXPECT_EQ(last.at("state"), "started");
    EXPECT_TRUE(last.at("done_s_ago").is_null());
    const nlohmann::json& waiting_s = file.at("ranks").at(rank).at("waiting_s");
    if (waiting_s.is_number()) longest_wait_s = std::max(longest_wait_s, waiting_s.get<double>());
  }
  EXPECT_GE(longest_wait_s, 0.99);
  EXPECT_EQ(last_operation(file, 1).at("tag"), "first");
  EXPECT_EQ(last_operation(file, 1).at("state"), "done");
  EXPECT_EQ(file.at("ranks").at(1).at("presence"), "running");
  std::filesystem::remove_all(testing::TempDir() + "sixfold-never");
}

TEST(FlightFile, IsWrittenForMismatchesAndExceptionsToo) {
  comm::WorldOptions options;
  options.flight_recorder_dir = new_folder("mismatch");
  run_failing(
      2,
      [](comm::World& world) {
        std::vector<float> x(world.rank() == 0 ? 7 : 8);
        all_reduce(world.group(), x, "uneven").wait();
        world.group().barrier();
      },
      options);
  const nlohmann::json mismatch = read_file(options.flight_recorder_dir);
  EXPECT_EQ(last_operation(mismatch, 0).at("count"), 7);
  EXPECT_EQ(last_operation(mismatch, 1).at("count"), 8);
  const Ended ended = run_failing(
      2,
      [](comm::World& world) {
        world.group().barrier();
        if (world.rank() == 1) throw std::runtime_error("disk \xff full");
        world.group().barrier();
      },
      options);
  EXPECT_EQ(ended.error, "disk \xff full");
  EXPECT_EQ(read_file(options.flight_recorder_dir).at("reason"), "disk \xEF\xBF\xBD full");  // not UTF-8: replaced
  std::filesystem::remove_all(options.flight_recorder_dir);
}

TEST(FlightFile, NeedsAFolder) {
  comm::WorldOptions options;
  options.num_ranks = 2;
  options.flight_recorder_dir = "/dev/null/x";
  try {
    comm::run_world(options, [](comm::World&) { FAIL() << "started"; });
    FAIL() << "no exception";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("--flight-recorder /dev/null/x"), std::string::npos) << error.what();
  }
}

// Ranks that return are noticed long before the deadline, by whoever waits for them.
TEST(Departures, EndWaitsForCollectives) {
  const Ended ended = run_failing(4, [](comm::World& world) {
    std::vector<float> x(10);
    all_reduce(world.group(), x, "dp.grads").wait();
    if (world.rank() == 2) return;
    all_reduce(world.group(), x, "dp.grads").wait();
  });
  EXPECT_NE(ended.error.find("all_reduce #1 (dp.grads) of group world: rank 2 has left"), std::string::npos)
      << ended.error;
  EXPECT_LT(ended.seconds, 3);
}

TEST(Departures, EndWaitsForMessages) {
  for (const bool sends : {false, true}) {
    const Ended ended = run_failing(2, [sends](comm::World& world) {
      std::vector<float> x(10000000);  // longer than a link holds
      if (world.rank() == 1) return;
      const comm::Buf buf(x.data(), x.size(), DType::F32);
      (sends ? world.group().send(buf, 1) : world.group().recv(buf, 1)).wait();
    });
    EXPECT_NE(ended.error.find("rank 1 has left"), std::string::npos) << ended.error;
    EXPECT_NE(ended.error.find(sends ? "send to rank 1 #0" : "recv from rank 1 #0"), std::string::npos) << ended.error;
    EXPECT_LT(ended.seconds, 3);
  }
}

// What a rank has sent before it left still arrives, however late it is received.
TEST(Departures, LeaveMessagesBehind) {
  run_ranks(2, [](comm::World& world) {
    std::vector<float> x(100, static_cast<float>(world.rank()));
    const comm::Buf buf(x.data(), x.size(), DType::F32);
    if (world.rank() == 1) {
      world.group().send(buf, 0).wait();
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    world.group().recv(buf, 1).wait();
    EXPECT_EQ(x[99], 1);
  });
}

// An emulated link shows a message late; its sender may be gone by then. 120 kB at 100 kB/s, in two slices.
TEST(Departures, LeaveSlowMessagesBehind) {
  comm::WorldOptions options;
  options.topology = "2x1";
  options.emulate_links = "intra=1,inter=0.0001";
  run_ranks(
      2,
      [](comm::World& world) {
        std::vector<float> x(30000, static_cast<float>(world.rank()));
        const comm::Buf buf(x.data(), x.size(), DType::F32);
        if (world.rank() == 1) {
          world.group().send(buf, 0).wait();
          return;
        }
        const double start = comm::seconds_now();
        world.group().recv(buf, 1).wait();
        EXPECT_GT(comm::seconds_now() - start, 1.0);
        EXPECT_EQ(x[29999], 1);
      },
      options);
}

TEST(Sections, StopTheOthersClock) {
  comm::WorldOptions options;
  options.timeout_s = 0.5;
  run_ranks(
      3,
      [](comm::World& world) {
        if (world.rank() == 0) {
          const comm::World::Section save(world, "save");
          std::this_thread::sleep_for(std::chrono::milliseconds(1700));
        }
        world.group().barrier();
      },
      options);
}

TEST(Sections, NoLongerThanTheyLast) {
  comm::WorldOptions options;
  options.timeout_s = 0.5;
  const Ended ended = run_failing(
      2,
      [](comm::World& world) {
        if (world.rank() == 0) {
          { const comm::World::Section save(world, "save"); }
          std::this_thread::sleep_for(std::chrono::milliseconds(1700));
        }
        world.group().barrier();
      },
      options);
  EXPECT_NE(ended.error.find("--timeout"), std::string::npos) << ended.error;
}

// A child that comes out of the body, by an exception or by returning, ends there; the parents go on.
TEST(Fork, ChildrenDoNoHarm) {
  run_ranks(2, [](comm::World& world) {
    std::vector<float> x(100000, 1.0f);
    comm::Work work = all_reduce(world.group(), x, "parent");
    if (world.rank() == 0) {
      const pid_t child = fork();
      if (child == 0) return;
      int status = -1;
      EXPECT_EQ(waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    work.wait();
    world.group().barrier();
    EXPECT_EQ(x[99999], 2);
  });
}

}  // namespace
}  // namespace sixfold::test
