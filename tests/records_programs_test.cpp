// --comm-log and --trace of programs as users start them.
#include <set>
#include <tuple>

#include "tests/trace_check.h"
#include "tests/train_gpt_fixture.h"

namespace sixfold::test {
namespace {

class Records : public TrainGpt {
 protected:
  static std::vector<json> lines_of(const std::string& path) {
    std::vector<json> lines;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
  }
  static std::string text_of(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  static std::string files() { return " --comm-log " + file("comm.jsonl") + " --trace " + file("trace.json"); }
};

TEST_F(Records, OfARunAddUpToItsTable) {
  const std::vector<json> log = log_of(launch(false, 2), "--steps 3" + files());
  ASSERT_EQ(log.size(), 4u);
  struct Sum {
    int64_t calls = 0, bytes = 0, sent = 0;
  };
  std::map<std::string, Sum> in_steps, outside;
  const auto key_of = [](const json& row) {
    return row["tag"].get<std::string>() + " " + row["primitive"].get<std::string>() + " " +
           row["algorithm"].get<std::string>();
  };
  const std::vector<json> lines = lines_of(file("comm.jsonl"));
  std::set<std::pair<int, int>> steps;
  for (const json& line : lines) {
    const std::string tag = line["tag"];
    const bool is_outside = tag == "dp.params" || tag == "dp.eval" || tag == "barrier";
    EXPECT_EQ(line["step"] == 0, is_outside) << line;
    steps.emplace(line["rank"].get<int>(), line["step"].get<int>());
    EXPECT_FALSE(line["end_s"].is_null());
    if (line["rank"] != 0) continue;
    Sum& sum = (line["step"] == 0 ? outside : in_steps)[key_of(line)];
    ++sum.calls;
    sum.bytes += line["bytes"].get<int64_t>();
    sum.sent += line["sent_intra_bytes"].get<int64_t>();
    EXPECT_EQ(line["sent_inter_bytes"], 0);
  }
  for (const int rank : {0, 1}) {
    for (const int step : {0, 1, 2, 3}) EXPECT_TRUE(steps.count({rank, step})) << rank << " " << step;
  }
  const json& summary = log.back()["summary"];
  const auto compare = [&](const json& rows, const std::map<std::string, Sum>& sums, double parts,
                           const std::string& suffix) {
    EXPECT_EQ(rows.size(), sums.size());
    for (const json& row : rows) {
      const Sum& sum = sums.at(key_of(row));
      EXPECT_NEAR(row["calls" + suffix].get<double>() * parts, static_cast<double>(sum.calls), 1e-9);
      EXPECT_NEAR(row["bytes" + suffix].get<double>() * parts, static_cast<double>(sum.bytes), 1e-3);
      EXPECT_NEAR(row["sent_bytes" + suffix].get<double>() * parts, static_cast<double>(sum.sent), 1e-3);
    }
  };
  compare(summary["comm"], in_steps, 3, "_per_step");
  compare(summary["comm_outside"], outside, 1, "");
  // What was exposed is within the steps, and the same in their lines and in the table.
  double step_ms = 0, exposed_ms = 0, exposed_of_rows = 0;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_LE(log[i]["exposed_comm_ms"], log[i]["step_ms"]);
    step_ms += log[i]["step_ms"].get<double>();
    exposed_ms += log[i]["exposed_comm_ms"].get<double>();
  }
  for (const json& row : summary["comm"]) exposed_of_rows += row["exposed_ms_per_step"].get<double>() * 3;
  EXPECT_NEAR(exposed_of_rows, exposed_ms, 1e-6);
  EXPECT_NEAR(summary["mean_step_ms"].get<double>() * 3, step_ms, 1e-6);

  const Trace trace = check_trace(text_of(file("trace.json")));
  for (const int rank : {0, 1}) {
    EXPECT_EQ(trace.process_names.at(rank), "rank " + std::to_string(rank));
    std::map<std::string, int> names;
    for (const json& slice : trace.slices_of(rank, "compute")) {
      if (slice["args"]["step"] == 2) ++names[slice["name"]];
    }
    for (const char* unit : {"", "embedding ", "h.0 ", "h.1 ", "head "}) {
      const std::string of = *unit == '\0' ? " of micro-batch 0" : "";
      EXPECT_EQ(names[unit + std::string("forward") + of], 1) << unit;
      EXPECT_EQ(names[unit + std::string("backward") + of], 1) << unit;
    }
    EXPECT_EQ(names["optimizer"], 1);
    EXPECT_FALSE(trace.slices_of(rank, "standing still").empty());
  }
  int num_collectives = 0;
  for (const json& slice : trace.slices) num_collectives += slice["cat"] == "all_reduce" || slice["cat"] == "broadcast";
  EXPECT_EQ(num_collectives, static_cast<int>(lines.size()));
}

#ifdef SIXFOLD_MPIRUN
// Stages on two hosts, as far as the program can tell: messages between them match.
TEST_F(Records, OfTwoHostsMatch) {
  const Outcome outcome =
      train(launch(true, 2),
            "--steps 2 --pp 2 --micro-batch 6 --topology 2x1 --force-mpi-links --progress-thread on" + files());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  std::map<std::tuple<std::string, int, int, int, int64_t>, std::pair<json, json>> messages;
  for (const json& line : lines_of(file("comm.jsonl"))) {
    if (line["peer"].is_null()) continue;
    const bool sends = line["primitive"] == "send";
    const int rank = line["rank"], peer = line["peer"];
    auto& ends = messages[{line["group"], sends ? rank : peer, sends ? peer : rank, line["lane"], line["sequence"]}];
    (sends ? ends.first : ends.second) = line;
    EXPECT_EQ(line["sent_intra_bytes"], 0);
    EXPECT_EQ(line["sent_inter_bytes"], sends ? line["bytes"].get<int64_t>() : 0);
  }
  EXPECT_GE(messages.size(), 8u);
  for (const auto& [key, ends] : messages) {
    ASSERT_FALSE(ends.first.is_null() || ends.second.is_null());
    EXPECT_EQ(ends.first["bytes"], ends.second["bytes"]);
    EXPECT_EQ(ends.first["tag"], ends.second["tag"]);
  }
  const Trace trace = check_trace(text_of(file("trace.json")), false);
  EXPECT_EQ(trace.flow_starts.size(), messages.size());
}
#endif

#ifdef SIXFOLD_MPIRUN
// Groups of MPI's have names of their own, and what MPI does not tell is not said to be 0.
TEST_F(Records, OfMpisCollectives) {
  const std::vector<json> log = log_of(launch(true, 4), "--comm mpi --steps 2 --dp 2 --tp 2" + files());
  std::map<std::string, std::set<int>> members;
  for (const json& line : lines_of(file("comm.jsonl"))) {
    if (line["tag"] == "dp.grads" || line["tag"] == "tp.attn_out")
      members[line["group"]].insert(line["rank"].get<int>());
    for (const char* unknown : {"sent_intra_bytes", "sent_inter_bytes", "algorithm", "wait_ms", "exposed_wait_ms"}) {
      EXPECT_TRUE(line[unknown].is_null()) << unknown;
    }
  }
  std::set<std::set<int>> groups;
  for (const auto& [name, ranks] : members) groups.insert(ranks);
  EXPECT_EQ(members.size(), 4u);
  EXPECT_EQ(groups, (std::set<std::set<int>>{{0, 1}, {2, 3}, {0, 2}, {1, 3}}));
  EXPECT_TRUE(log[0]["exposed_wait_ms"].is_null());
}
#endif

TEST_F(Records, ThatCannotBeWrittenAreRefusedAtTheStart) {
  for (const std::string flag : {"--comm-log", "--trace"}) {
    const Outcome outcome = train(kProgram, "--steps 1000000 " + flag + " /nonexistent/file");
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.output.find(flag + " /nonexistent/file: no file can be written there"), std::string::npos)
        << outcome.output;
  }
  const Outcome outcome = train(kProgram, "--steps 1000000 --comm-log " + file("x") + " --trace " + file("x"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.output.find("are one file"), std::string::npos) << outcome.output;
}

TEST_F(Records, OfCollectivePerf) {
  const Outcome outcome =
      run_command(std::string(SIXFOLD_BUILD_DIR) +
                  "/collective_perf --ranks 2 --op send_recv --min-bytes 64 --max-bytes 64 --iters 3 "
                  "--rounds 1 --warmup 0" +
                  files());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  std::map<std::string, int> counts;
  for (const json& line : lines_of(file("comm.jsonl"))) {
    if (line["tag"] == "perf") ++counts[line["primitive"]];
  }
  EXPECT_GT(counts["send"], 0);
  EXPECT_EQ(counts["send"], counts["recv"]);
  const Trace trace = check_trace(text_of(file("trace.json")));
  EXPECT_GE(static_cast<int>(trace.flow_starts.size()), counts["send"]);
}

}  // namespace
}  // namespace sixfold::test
