// The flight recorder by itself: the ring of operations, what a rank is doing, the report, and whether a process lives.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
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

}  // namespace
}  // namespace sixfold::test
