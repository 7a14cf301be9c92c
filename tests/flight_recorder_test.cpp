// What a World of threads knows of its ranks: the ring of operations, what each rank is doing, the report and the file
// of a failure; ranks that leave, and sections that stop the clock.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/comm/host/progress.h"
#include "runtime/comm/observe/flight_report.h"
#include "tests/harness.h"

namespace sixfold::test {
namespace {

using comm::FixedName;
using comm::FlightRecorder;
using comm::OperationRecord;
using comm::Primitive;
using comm::RankSnapshot;
using comm::RecordedName;

// Two ranks' recorders in one region, as two threads have them.
struct Pair {
  std::shared_ptr<comm::SharedRegion> region = comm::SharedRegion::anonymous(FlightRecorder::region_bytes(2));
  FlightRecorder a{region, 5, {5, 7}};
  FlightRecorder b{region, 7, {5, 7}};

  /// Rank 5's, as rank 7 sees them.
  std::vector<OperationRecord> records() const { return b.snapshot()[0].records; }
};

comm::Signature signature_of_count(uint64_t count) {
  return {Primitive::AllReduce, DType::BF16, ReduceOp::Max, comm::Algorithm::Tree, 0, count};
}

TEST(FixedNames, AreCutAtOneEnd) {
  const std::string exact(32, 'x');
  EXPECT_EQ(FixedName("dp.grads").str(), "dp.grads");
  EXPECT_EQ(FixedName("").str(), "");
  EXPECT_EQ(FixedName(exact).str(), exact);
  const std::string longer = "0123456789abcdefghijklmnopqrstuvw";  // 33
  EXPECT_EQ(FixedName(longer).str(), "0123456789abcdefghijklmnopqrs...");
  EXPECT_EQ(FixedName(longer, FixedName::Keep::Tail).str(), "...456789abcdefghijklmnopqrstuvw");
}

TEST(Recorder, KeepsTheLast256OperationsForOthersToRead) {
  Pair pair;
  const RecordedName world("world"), grads("dp.grads");
  for (uint64_t i = 0; i < 300; ++i) {
    const double now = 100 + static_cast<double>(i);
    const uint64_t number = pair.a.issue(world, grads, signature_of_count(1000 + i), i, -1, now);
    EXPECT_EQ(number, i);
    if (i < 299) pair.a.start(number, now + 0.25);
    if (i < 298) pair.a.finish(number, now + 0.5);
  }
  const std::vector<RankSnapshot> ranks = pair.b.snapshot();
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[0].rank, 5);
  EXPECT_EQ(ranks[1].rank, 7);
  EXPECT_TRUE(ranks[1].records.empty());
  const std::vector<OperationRecord>& records = ranks[0].records;
  ASSERT_EQ(records.size(), 256u);
  for (uint64_t i = 0; i < 256; ++i) {
    const uint64_t n = 44 + i;  // 300 - 256 are gone
    EXPECT_EQ(records[i].number, n);
    EXPECT_EQ(records[i].operation.sequence, n);
    EXPECT_EQ(records[i].operation.signature, signature_of_count(1000 + n));
    EXPECT_EQ(records[i].operation.group.str(), "world");
    EXPECT_EQ(records[i].operation.tag.str(), "dp.grads");
    EXPECT_EQ(records[i].issued_s, 100 + static_cast<double>(n));
    EXPECT_EQ(records[i].started_s, n < 299 ? 100.25 + static_cast<double>(n) : 0);
    EXPECT_EQ(records[i].done_s, n < 298 ? 100.5 + static_cast<double>(n) : 0);
    EXPECT_EQ(records[i].state(), n == 299 ? "issued" : n == 298 ? "started" : "done");
  }
  EXPECT_EQ(ranks[0].last_done()->number, 297u);
  EXPECT_EQ(ranks[0].under_way()->number, 298u);
}

// An operation that ends after 256 later ones were issued leaves the record in its place alone.
TEST(Recorder, AnOverwrittenRecordIsNotTouched) {
  Pair pair;
  const RecordedName name("x");
  for (uint64_t i = 0; i < 257; ++i) pair.a.issue(name, name, signature_of_count(i), i, -1, 1);
  pair.a.start(0, 2);
  pair.a.finish(0, 2);
  pair.a.finish(1, 3);
  const auto records = pair.records();
  EXPECT_EQ(records.back().number, 256u);
  EXPECT_EQ(records.back().state(), "issued");
  EXPECT_EQ(records.front().state(), "done");
}

// More names than the table has places: those in use stay readable, because they are written again.
TEST(Recorder, NamesOutliveManyOthers) {
  Pair pair;
  const RecordedName world("world"), grads("dp.grads");
  for (int i = 0; i < 5000; ++i) {
    pair.a.issue(RecordedName("world/" + std::to_string(i)), grads, signature_of_count(1), 0, -1, 1);
    if (i % 400 == 0) pair.a.issue(world, grads, signature_of_count(1), 0, -1, 1);
  }
  for (const OperationRecord& record : pair.records()) {
    EXPECT_EQ(record.operation.tag.str(), "dp.grads");
    EXPECT_EQ(record.operation.group.str().substr(0, 5), "world");
  }
  EXPECT_EQ(pair.records().back().operation.group.str(), "world/4999");
}

TEST(Recorder, ReadersNeverSeeHalfARecord) {
  Deadline deadline(30, "readers beside a writer");
  Pair pair;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    const RecordedName even("even"), odd("odd");
    for (uint64_t i = 0; !stop; ++i) {
      const RecordedName& name = i % 2 == 0 ? even : odd;
      pair.a.finish(pair.a.issue(name, name, signature_of_count(i), i, static_cast<int>(i % 1000), 1), 2);
    }
  });
  int num_seen = 0;
  const double end = comm::seconds_now() + 0.5;
  while (comm::seconds_now() < end || num_seen < 10000) {
    for (const OperationRecord& record : pair.records()) {
      const uint64_t i = record.number;
      ++num_seen;
      ASSERT_EQ(record.operation.sequence, i);
      ASSERT_EQ(record.operation.signature, signature_of_count(i));
      ASSERT_EQ(record.operation.peer, static_cast<int>(i % 1000));
      ASSERT_EQ(record.operation.group.str(), i % 2 == 0 ? "even" : "odd");
    }
  }
  stop = true;
  writer.join();
}

TEST(Recorder, SaysWhatARankIsDoing) {
  Pair pair;
  EXPECT_EQ(pair.b.section_elsewhere(10), "");
  pair.a.begin_section("save", 7);
  pair.a.begin_section("inner", 8);
  EXPECT_EQ(pair.b.section_elsewhere(10), "rank 5 is in section 'save' since 3.0 s");
  EXPECT_EQ(pair.a.section_elsewhere(10), "");  // its own is none of its business
  pair.a.end_section();
  EXPECT_EQ(pair.b.snapshot()[0].section, "save");
  pair.a.end_section();
  EXPECT_EQ(pair.b.section_elsewhere(10), "");
  EXPECT_THROW(pair.a.end_section(), CheckError);

  pair.a.wait(3, 8.5);
  EXPECT_EQ(pair.b.snapshot()[0].waiting_since_s, 8.5);
  EXPECT_EQ(pair.b.snapshot()[0].waiting_for, 3u);
  pair.a.end_wait();
  EXPECT_EQ(pair.b.snapshot()[0].waiting_since_s, 0);
  EXPECT_FALSE(pair.b.has_left(5));
  pair.a.leave(9);
  EXPECT_TRUE(pair.b.has_left(5));
  EXPECT_FALSE(pair.b.has_left(6));  // on another host, if at all
  EXPECT_EQ(pair.b.snapshot()[0].presence, RankSnapshot::Presence::Left);
  EXPECT_EQ(pair.b.snapshot()[1].presence, RankSnapshot::Presence::Running);
}

TEST(Recorder, ReportHasALineARank) {
  Pair pair;
  const RecordedName world("world"), grads("dp.grads"), pp("pp.act");
  pair.a.finish(pair.a.issue(world, grads, signature_of_count(64), 16, -1, 90), 97.5);
  const uint64_t stuck = pair.a.issue(world, grads, signature_of_count(128), 17, -1, 98);
  pair.a.start(stuck, 98);
  pair.a.wait(stuck, 98.5);
  pair.b.issue(world, pp, {Primitive::Recv, DType::F32, ReduceOp::Sum, comm::Algorithm::Auto, 0, 9}, 2, 1, 95);
  const std::string report = comm::format_report("no luck", 5, {7}, pair.b.snapshot(), 100);
  EXPECT_EQ(report,
            "no luck\nwhat the ranks of this host were doing, as rank 5 saw it:\n"
            "  rank 5: waiting since 1.5 s; under way: all_reduce #17 (dp.grads) of group world, count 128, bf16, max, "
            "root 0, tree, started; last done, 2.5 s ago: all_reduce #16 (dp.grads) of group world, count 64, bf16, "
            "max, root 0, tree\n"
            "  rank 7: computing; HAS NOT ENTERED what is waited for; under way: recv from rank 1 #2 (pp.act) of group "
            "world, count 9, f32, issued; nothing done yet");
}

// A child process by what it is: alive, ended but not yet waited for, gone, and a number that belongs to another now.
TEST(ProcessIdentity, TellsWhetherAProcessHasEnded) {
  Deadline deadline(20, "a child process");
  EXPECT_FALSE(comm::ProcessIdentity::own().has_ended());
  EXPECT_FALSE(comm::ProcessIdentity{}.has_ended());  // unknown
  int from_child[2], to_child[2];
  ASSERT_EQ(pipe(from_child) + pipe(to_child), 0);
  const pid_t child = fork();
  if (child == 0) {
    const comm::ProcessIdentity own = comm::ProcessIdentity::own();
    char go = 0;
    const bool told = write(from_child[1], &own, sizeof(own)) == sizeof(own) && read(to_child[0], &go, 1) == 1;
    _exit(told ? 0 : 1);
  }
  comm::ProcessIdentity identity;
  ASSERT_EQ(read(from_child[0], &identity, sizeof(identity)), static_cast<ssize_t>(sizeof(identity)));
  EXPECT_EQ(identity.pid, child);
  EXPECT_FALSE(identity.has_ended());
  comm::ProcessIdentity former = identity;
  former.start_ticks -= 1;
  EXPECT_TRUE(former.has_ended());
  comm::ProcessIdentity elsewhere = former;
  elsewhere.pid_namespace += 1;
  EXPECT_FALSE(elsewhere.has_ended());  // the number says nothing
  ASSERT_EQ(write(to_child[1], "g", 1), 1);
  while (!identity.has_ended()) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a zombie
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(identity.has_ended());
  for (int fd : {from_child[0], from_child[1], to_child[0], to_child[1]}) close(fd);
}

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
    EXPECT_GE(file.at("ranks").at(rank).at("waiting_s").get<double>(), 0.99);
  }
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
