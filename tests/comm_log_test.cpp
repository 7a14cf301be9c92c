// The log of operations: what it says adds up to the table, agrees between the ends of a message, tells late ranks from
// transfer, and costs nothing where it is off.
#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <tuple>

#include "runtime/comm/observe/records.h"
#include "tests/harness.h"

namespace sixfold::test {
namespace {

using comm::LoggedOperation;
using comm::Primitive;
using comm::RankRecords;

comm::WorldOptions logging(size_t bytes = size_t{1} << 20) {
  comm::WorldOptions options;
  options.comm_log_bytes = bytes;
  options.links.num_slots = 2;
  options.links.slot_bytes = 1024;
  options.progress_thread = comm::ProgressThreadUse::Off;
  return options;
}

comm::Buf buf(std::vector<float>& x) {
  return {x.data(), x.size(), DType::F32};
}

const comm::LoggedRow& row_of(const RankRecords& rank, const LoggedOperation& op) {
  return rank.rows[op.row];
}

/// The one operation with that tag.
const LoggedOperation& find(const RankRecords& rank, const std::string& tag) {
  const auto found = std::find_if(rank.operations.begin(), rank.operations.end(),
                                  [&](const LoggedOperation& op) { return row_of(rank, op).tag == tag; });
  EXPECT_NE(found, rank.operations.end()) << tag;
  return *found;
}

/// Runs `body` on all ranks and returns their records.
std::vector<RankRecords> record(int num_ranks, const std::function<void(comm::World&)>& body,
                                const comm::WorldOptions& options = logging()) {
  std::vector<RankRecords> ranks;
  run_ranks(
      num_ranks,
      [&](comm::World& world) {
        world.group().barrier();
        world.comm_table().reset();
        world.comm_log()->clear();
        body(world);
        auto gathered = comm::gather_records(world, comm::measure_clock_offset(world));
        if (world.rank() == 0) ranks = std::move(gathered);
      },
      options);
  return ranks;
}

// Rank 2 comes 20 ms after the others have entered: they wait so much longer, and the rest of their time is counted
// from when it came.
TEST(CommLog, ALateRankMakesTheOthersWait) {
  std::atomic<int> num_entered{0};
  const auto ranks = record(3, [&](comm::World& world) {
    std::vector<float> x(10000, 1.0f);
    if (world.rank() == 2) {
      while (num_entered < 2) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    comm::Work work = world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum, {.tag = "late"});
    ++num_entered;
    work.wait();
    const auto rows = world.comm_table().rows();
    ASSERT_EQ(rows.size(), 1u);
    if (world.rank() != 2) {
      EXPECT_GE(rows[0].wait_seconds, 0.020);
    }
    EXPECT_LE(rows[0].exposed_wait_seconds, rows[0].exposed_seconds);
  });
  const double last_came = find(ranks[2], "late").enqueued_s;
  EXPECT_EQ(find(ranks[2], "late").wait_s, 0);
  for (int r = 0; r < 2; ++r) {
    const LoggedOperation& op = find(ranks[static_cast<size_t>(r)], "late");
    EXPECT_GE(op.wait_s, 0.020);
    EXPECT_DOUBLE_EQ(op.wait_s, last_came - op.started_s);
    // The rest of its time is from then on.
    EXPECT_NEAR(op.ended_s - op.started_s - op.wait_s, op.ended_s - last_came, 1e-9);
    // What the rank stood still for the late one: its call to wait, until then.
    const comm::ExposedInterval& wait = ranks[static_cast<size_t>(r)].exposed.back();
    EXPECT_NEAR(op.exposed_wait_s, std::max(0.0, last_came - wait.start_s), 1e-9);
    EXPECT_LE(op.exposed_wait_s, op.exposed_s);
  }
}

// Both directions: a receiver waits for the sender's first slice, a sender whose links are full for the receiver.
TEST(CommLog, EndsOfMessagesWaitForOneAnother) {
  std::atomic<bool> is_issued{false};
  const auto ranks = record(2, [&](comm::World& world) {
    std::vector<float> x(100000, 1.0f);
    for (const int first : {0, 1}) {
      const comm::Options options{.tag = first == 0 ? "to_wait_for" : "to_wait"};
      const bool issues_first = world.rank() == first;
      if (!issues_first) {
        while (!is_issued) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        is_issued = false;
      }
      comm::Work work =
          world.rank() == 0 ? world.group().send(buf(x), 1, options) : world.group().recv(buf(x), 0, options);
      if (issues_first) is_issued = true;
      work.wait();
      world.group().barrier();
    }
  });
  const LoggedOperation &send = find(ranks[0], "to_wait_for"), &recv = find(ranks[1], "to_wait_for");
  EXPECT_DOUBLE_EQ(send.wait_s, recv.enqueued_s - send.started_s);
  EXPECT_GE(send.wait_s, 0.005);
  const LoggedOperation &late_send = find(ranks[0], "to_wait"), &early_recv = find(ranks[1], "to_wait");
  EXPECT_GE(early_recv.wait_s, 0.005);
  EXPECT_GE(early_recv.started_s + early_recv.wait_s, late_send.started_s);
  EXPECT_LE(early_recv.started_s + early_recv.wait_s, early_recv.ended_s);
}

void all_primitives(comm::World& world) {
  comm::Communicator& group = world.group();
  const auto n = static_cast<size_t>(group.size());
  std::vector<float> whole(n * 1000, 1.0f), part(1000), other(n * 1000);
  const auto options = [](const char* tag) { return comm::Options{.algorithm = comm::Algorithm::Auto, .tag = tag}; };
  for (int i = 0; i < 2; ++i) {
    group.broadcast(buf(whole), 1, options("broadcast")).wait();
    group.reduce(buf(whole), buf(other), ReduceOp::Sum, 0, options("reduce")).wait();
    group.all_reduce(buf(whole), buf(other), ReduceOp::Sum, options("all_reduce")).wait();
    group.all_gather(buf(part), buf(whole), options("all_gather")).wait();
    group.reduce_scatter(buf(whole), buf(part), ReduceOp::Sum, options("reduce_scatter")).wait();
    group.all_to_all(buf(whole), buf(other), options("all_to_all")).wait();
    const int next = (world.rank() + 1) % world.size(), before = (world.rank() + world.size() - 1) % world.size();
    const comm::P2p transfers[2] = {{comm::P2p::Kind::Send, buf(part), next, options("message")},
                                    {comm::P2p::Kind::Recv, buf(whole), before, options("message")}};
    whole.resize(1000);
    comm::P2p exchange[2] = {transfers[0], transfers[1]};
    exchange[1].buf = buf(whole);
    group.batch(exchange).wait();
    whole.resize(n * 1000);
    group.barrier();
  }
}

TEST(CommLog, AddsUpToTheTable) {
  std::vector<std::vector<comm::CommRow>> tables(4);
  comm::WorldOptions options = logging();
  options.topology = "2x2";
  const auto ranks = record(
      4,
      [&](comm::World& world) {
        all_primitives(world);
        tables[static_cast<size_t>(world.rank())] = world.comm_table().rows();
      },
      options);
  ASSERT_EQ(ranks.size(), 4u);
  for (const RankRecords& rank : ranks) {
    std::map<std::tuple<std::string, Primitive, comm::Algorithm>, comm::CommRow> sums;
    for (const LoggedOperation& op : rank.operations) {
      comm::CommRow& sum = sums[{row_of(rank, op).tag, row_of(rank, op).primitive, row_of(rank, op).algorithm}];
      ++sum.calls;
      sum.bytes += op.bytes;
      sum.sent_bytes += static_cast<uint64_t>(op.sent_intra_bytes + op.sent_inter_bytes);
      sum.sent_inter_bytes += static_cast<uint64_t>(op.sent_inter_bytes);
      sum.seconds += op.ended_s - op.started_s;
      sum.wait_seconds += std::max(op.wait_s, 0.0);
      sum.exposed_seconds += op.exposed_s;
      sum.exposed_wait_seconds += op.exposed_wait_s;
    }
    const auto& table = tables[static_cast<size_t>(rank.rank)];
    ASSERT_EQ(table.size(), sums.size());
    EXPECT_EQ(table.size(), 9u);  // six primitives, send, recv, barriers
    for (const comm::CommRow& row : table) {
      SCOPED_TRACE(row.tag);
      const comm::CommRow& sum = sums.at({row.tag, row.primitive, row.algorithm});
      EXPECT_EQ(sum.calls, row.calls);
      EXPECT_EQ(sum.bytes, row.bytes);
      EXPECT_EQ(sum.sent_bytes, row.sent_bytes);
      EXPECT_EQ(sum.sent_inter_bytes, row.sent_inter_bytes);
      EXPECT_NEAR(sum.seconds, row.seconds, 1e-9);
      EXPECT_NEAR(sum.wait_seconds, row.wait_seconds, 1e-9);
      EXPECT_NEAR(sum.exposed_seconds, row.exposed_seconds, 1e-9);
      EXPECT_NEAR(sum.exposed_wait_seconds, row.exposed_wait_seconds, 1e-9);
    }
  }
}

// A ring of 0 1 | 2 3 leaves its nodes after ranks 1 and 3; each rank sends 2 x 3/4 of the buffer.
TEST(CommLog, KnowsLinksBetweenNodes) {
  comm::WorldOptions options = logging();
  options.topology = "2x2";
  const auto ranks = record(
      4,
      [](comm::World& world) {
        std::vector<float> x(4000, 1.0f);
        world.group()
            .all_reduce(buf(x), buf(x), ReduceOp::Sum, {.algorithm = comm::Algorithm::Ring, .tag = "x"})
            .wait();
      },
      options);
  for (const RankRecords& rank : ranks) {
    const LoggedOperation& op = find(rank, "x");
    const bool crosses = rank.rank % 2 == 1;
    EXPECT_EQ(op.sent_intra_bytes, crosses ? 0 : 24000);
    EXPECT_EQ(op.sent_inter_bytes, crosses ? 24000 : 0);
    EXPECT_EQ(op.bytes, 16000u);
    EXPECT_EQ(op.count, 4000u);
    EXPECT_EQ(row_of(rank, op).backend, "own");
    EXPECT_EQ(row_of(rank, op).algorithm, comm::Algorithm::Ring);
    EXPECT_EQ(rank.groups[op.group].members, (std::vector<int>{0, 1, 2, 3}));
  }
}

// Each send has one receive with its group, lane and sequence, of the same size.
TEST(CommLog, SendsMatchReceives) {
  const auto ranks = record(3, [](comm::World& world) {
    // Ranks of this group are those of the World the other way round.
    comm::Communicator group = world.group().split(0, -world.rank());
    std::vector<std::vector<float>> buffers;
    std::vector<comm::Work> works;
    for (size_t i = 0; i < 6; ++i) {
      for (int peer = 0; peer < 3; ++peer) {
        const comm::Options options{.tag = "m", .lane = static_cast<int>(i % 2)};
        buffers.emplace_back(100 * (i + 1));
        works.push_back(group.send(buf(buffers.back()), peer, options));
        buffers.emplace_back(100 * (i + 1));
        works.push_back(group.recv(buf(buffers.back()), peer, options));
      }
    }
    for (comm::Work& work : works) work.wait();
  });
  std::map<std::tuple<std::string, int, int, int, uint64_t>, std::vector<const LoggedOperation*>> sends, receives;
  for (const RankRecords& rank : ranks) {
    for (const LoggedOperation& op : rank.operations) {
      if (op.peer < 0) continue;
      const comm::LoggedGroup& group = rank.groups[op.group];
      const int peer = group.members[static_cast<size_t>(op.peer)];
      const bool is_send = row_of(rank, op).primitive == Primitive::Send;
      (is_send ? sends
               : receives)[{group.name, is_send ? rank.rank : peer, is_send ? peer : rank.rank, op.lane, op.sequence}]
          .push_back(&op);
    }
  }
  EXPECT_EQ(sends.size(), 3u * 3u * 6u);
  ASSERT_EQ(receives.size(), sends.size());
  for (const auto& [key, list] : sends) {
    ASSERT_EQ(list.size(), 1u);
    ASSERT_EQ(receives[key].size(), 1u);
    EXPECT_EQ(receives[key][0]->bytes, list[0]->bytes);
    EXPECT_EQ(list[0]->sent_intra_bytes, static_cast<int64_t>(list[0]->bytes));
    EXPECT_LE(list[0]->started_s, receives[key][0]->ended_s);
  }
}

// Operations of several groups at once: the moments in which the rank stood still neither overlap nor exceed the time
// that it was in calls, and what is never waited for counts, too.
TEST(CommLog, CountsEachMomentOnce) {
  for (const auto use : {comm::ProgressThreadUse::Off, comm::ProgressThreadUse::On}) {
    comm::WorldOptions options = logging();
    options.progress_thread = use;
    std::vector<double> inside(2, 0);
    const auto ranks = record(
        2,
        [&](comm::World& world) {
          comm::Communicator other = world.group().split(0, 0);
          world.comm_table().reset();
          world.comm_log()->clear();
          std::vector<float> a(50000, 1.0f), b(50000, 1.0f), c(100), d(100);
          const int peer = 1 - world.rank();
          double calls = -comm::seconds_now();
          std::vector<comm::Work> works = {world.group().all_reduce(buf(a), buf(a), ReduceOp::Sum, {.tag = "a"}),
                                           other.all_reduce(buf(b), buf(b), ReduceOp::Sum, {.tag = "b"}),
                                           world.group().recv(buf(d), peer, {.tag = "d"})};
          world.group().send(buf(c), peer, {.tag = "c"});
          for (int i = 0; i < 100; ++i) world.progress();
          for (comm::Work& work : works) work.wait();
          calls += comm::seconds_now();
          inside[static_cast<size_t>(world.rank())] = calls;
        },
        options);
    for (const RankRecords& rank : ranks) {
      double sum = 0;
      for (const LoggedOperation& op : rank.operations) {
        sum += op.exposed_s;
        EXPECT_GE(op.exposed_s, 0);
      }
      EXPECT_GT(find(rank, "c").exposed_s, 0);
      EXPECT_GT(sum, 0);
      EXPECT_LE(sum, inside[static_cast<size_t>(rank.rank)]);
      double long_ones = 0;
      for (size_t i = 0; i < rank.exposed.size(); ++i) {
        long_ones += rank.exposed[i].end_s - rank.exposed[i].start_s;
        EXPECT_GE(rank.exposed[i].end_s - rank.exposed[i].start_s, comm::kShortestInterval);
        const double last_end = i == 0 ? 0 : rank.exposed[i - 1].end_s;
        EXPECT_LE(last_end, rank.exposed[i].start_s);
      }
      EXPECT_LE(long_ones, sum + 1e-9);
    }
  }
}

// While one of two operations waits for a late rank, the other's transfer goes on: the time under way counts once.
TEST(CommLog, TimeUnderWayCountsOnce) {
  run_ranks(2, [](comm::World& world) {
    comm::Communicator other = world.group().split(0, 0);
    world.group().barrier();
    world.comm_table().reset();
    std::vector<float> a(50000, 1.0f), b(50000, 1.0f);
    const double start = comm::seconds_now();
    comm::Work first = world.group().all_reduce(buf(a), buf(a), ReduceOp::Sum, {.tag = "a"});
    comm::Work second = other.all_reduce(buf(b), buf(b), ReduceOp::Sum, {.tag = "b"});
    first.wait();
    second.wait();
    const double elapsed = comm::seconds_now() - start;
    double sum = 0, longest = 0;
    for (const comm::CommRow& row : world.comm_table().rows()) {
      sum += row.seconds;
      longest = std::max(longest, row.seconds);
    }
    const double busy = world.comm_table().busy_seconds();
    EXPECT_LE(busy, elapsed);
    EXPECT_LE(busy, sum + 1e-9);
    EXPECT_GE(busy, longest - 1e-9);
  });
}

TEST(CommLog, RemembersStepsUnitsAndWhatIsTooMuch) {
  const auto ranks = record(
      2,
      [](comm::World& world) {
        comm::CommLog& log = *world.comm_log();
        const int32_t unit = log.unit("h.0");
        EXPECT_EQ(log.unit("h.0"), unit);
        for (int step = 1; step <= 2000; ++step) {
          world.comm_table().set_step(step, comm::seconds_now());
          log.span(comm::ComputeSpan::Kind::Backward, unit, 3, step, step + 0.5);
          world.group().barrier();
        }
      },
      logging(256 << 10));
  for (const RankRecords& rank : ranks) {
    // A half of the memory is for operations, a quarter for spans.
    const size_t num_operations = (128 << 10) / sizeof(LoggedOperation);
    EXPECT_GT(rank.operations.size(), num_operations * 98 / 100);
    EXPECT_LE(rank.operations.size(), num_operations);
    EXPECT_EQ(rank.operations[700].step, 701);
    ASSERT_GT(rank.spans.size(), 700u);
    EXPECT_EQ(rank.spans[700].step, 701);
    EXPECT_EQ(rank.spans[700].start_s, 701);
    EXPECT_EQ(rank.spans[700].micro_batch, 3);
    EXPECT_EQ(rank.units.at(static_cast<size_t>(rank.spans[700].unit)), "h.0");
    const size_t kept = rank.operations.size() + rank.spans.size();
    EXPECT_GE(rank.num_dropped, 4000 - kept);
  }
}

}  // namespace
}  // namespace sixfold::test
