// What a run prints and logs: tables, JSON lines, progress.
#include "runtime/train/report.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/train/console.h"
#include "runtime/train/step_log.h"

namespace sixfold::train {
namespace {

using Json = nlohmann::ordered_json;

// Ten steps, nine of 200 ms. An AllReduce of 3 MB a step on 4 ranks, 4.5 MB sent, 10 ms of which 6 ms are exposed.
RunSummary example() {
  RunSummary summary;
  summary.num_steps = 10;
  summary.num_ranks = 4;
  summary.num_threads = 2;
  summary.num_parameters = 750'000;
  summary.step_seconds = 0.2;
  summary.total_step_seconds = 2.4;  // the first took 600 ms
  summary.median_step_seconds = 0.19;
  summary.tokens_per_second = 5000;
  summary.flops_per_token = 4e6;
  summary.gemm_gflops = 50;
  summary.evaluations = {{5, 3.5}, {10, 2.25}};
  summary.weights_hash = 0x00ab'cdef'0123'4567;
  comm::CommRow row;
  row.tag = "dp.grads";
  row.primitive = comm::Primitive::AllReduce;
  row.algorithm = comm::Algorithm::Ring;
  row.backend = "own";
  row.group_size = 4;
  row.calls = 20;
  row.bytes = 30'000'000;
  row.sent_bytes = 45'000'000;
  row.predicted_sent_bytes = 45'000'000;
  row.seconds = 0.1;
  row.sent_inter_bytes = 15'000'000;
  row.wait_seconds = 0.03;
  row.exposed_seconds = 0.06;
  row.exposed_wait_seconds = 0.02;
  summary.comm = {row};
  row.backend = "mpi";
  row.tag = "dp.other";
  row.algorithm = comm::Algorithm::Auto;
  row.knows_waits = false;
  summary.comm.push_back(row);
  row = {};
  row.tag = "dp.params";
  row.primitive = comm::Primitive::Broadcast;
  row.algorithm = comm::Algorithm::Binomial;
  row.backend = "own";
  row.group_size = 4;
  row.calls = 3;
  row.bytes = row.sent_bytes = 3'000'000;
  row.predicted_sent_bytes = 3e6;
  row.seconds = 0.5;
  row.exposed_seconds = 0.4;
  row.wait_seconds = row.exposed_wait_seconds = 0.1;
  summary.comm_outside = {row};
  summary.comm_busy_seconds = 0.15;  // of 0.2, for half of one goes on beside half of the other
  summary.memory = {{Category::Parameters, 3'000'000, 3e6}, {Category::Activations, 1'500, std::nullopt}};
  return summary;
}

// Lines, each cut at blanks.
std::vector<std::vector<std::string>> words_of(const std::string& text) {
  std::vector<std::vector<std::string>> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    lines.emplace_back(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>());
  }
  return lines;
}

TEST(Report, CommunicationTable) {
  std::ostringstream out;
  print_comm_table(out, example());
  const auto lines = words_of(out.str());
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_NE(out.str().find("over all 10 steps, the first included (mean 240.000 ms, median 190.000 ms)"),
            std::string::npos);
  // algbw = 30 MB / 0.1 s; busbw = algbw x 2 x 3 / 4; share = 6 ms / 240 ms
  EXPECT_EQ(lines[2], (std::vector<std::string>{"dp.grads", "all_reduce", "ring", "2.00", "3.000", "4.500", "4.500",
                                                "10.000", "6.000", "2.000", "0.30", "0.45", "2.5%"}));
  // MPI does not tell what it sends, how, and when ranks have come.
  EXPECT_EQ(lines[3], (std::vector<std::string>{"dp.other", "all_reduce", "(mpi)", "-", "2.00", "3.000", "-", "-",
                                                "10.000", "6.000", "-", "0.30", "0.45", "2.5%"}));
  RunSummary alone = example();
  alone.num_ranks = 1;
  std::ostringstream none;
  print_comm_table(none, alone);
  EXPECT_EQ(none.str(), "communication: none (one rank)\n");
}

// Sums over the run, as they are.
TEST(Report, WhatIsOutsideTheSteps) {
  std::ostringstream out;
  print_outside_table(out, example());
  const auto lines = words_of(out.str());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[2], (std::vector<std::string>{"dp.params", "broadcast", "binomial", "3", "3.000", "3.000", "3.000",
                                                "500.000", "400.000", "100.000"}));
  std::ostringstream none;
  print_outside_table(none, {});
  EXPECT_EQ(none.str(), "");
}

TEST(Report, Medians) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({5, 1, 2}), 2);
  EXPECT_EQ(median({8, 1, 2, 4}), 3);
}

TEST(Report, PrimitiveTable) {
  RunSummary summary = example();
  summary.comm.push_back(summary.comm[0]);  // another tag of the same primitive
  summary.comm.back().tag = "tp.attn_out";
  std::ostringstream out;
  print_primitive_table(out, summary);
  auto lines = words_of(out.str());
  ASSERT_EQ(lines.size(), 5u);
  // Twice the row of the example: 10 MB of 30 sent go to another node; 12 of 20 ms are exposed.
  EXPECT_EQ(lines[3], (std::vector<std::string>{"all_reduce", "4.00", "6.000", "6.000", "3.000", "20.000", "12.000",
                                                "4.000", "40.0%"}));
  EXPECT_EQ(lines[2], (std::vector<std::string>{"all_reduce", "(mpi)", "2.00", "3.000", "-", "-", "10.000", "6.000",
                                                "-", "40.0%"}));
  EXPECT_NE(
      out.str().find("under way for 15.000 ms a step, exposed 18.000 ms = 7.5% of the mean step (overlap 0.0%)\n"),
      std::string::npos);

  summary = example();
  summary.comm.pop_back();  // MPI's
  std::ostringstream own;
  print_primitive_table(own, summary);
  EXPECT_NE(
      own.str().find(
          "all: communication under way for 15.000 ms a step, exposed 6.000 ms = 2.5% of the mean step "
          "(overlap 60.0%), waited for late ranks 2.000 ms; sent 3.000 MB inside nodes, 1.500 MB between nodes\n"),
      std::string::npos)
      << own.str();
}

TEST(Report, MemoryAndSpeed) {
  std::ostringstream out;
  print_memory_table(out, example());
  const auto lines = words_of(out.str());
  EXPECT_EQ(lines.at(2), (std::vector<std::string>{"parameters", "3.000", "3.000"}));
  EXPECT_EQ(lines.at(3), (std::vector<std::string>{"activations", "0.002", "-"}));
  std::ostringstream speed;
  print_speed(speed, example());
  // 5000 tokens/s x 4 MFLOP = 20 GFLOP/s of 50
  EXPECT_EQ(speed.str(),
            "speed: 5000 tokens/s, 200.0 ms a step (mean without the first), 20.0 GFLOP/s = 40.0% of the 50.0 GFLOP/s "
            "that matrix products reach "
            "here (4 x 2 threads)\n");
  EXPECT_DOUBLE_EQ(example().mfu(), 0.4);
}

TEST(Report, ColumnsLineUp) {
  std::ostringstream out;
  print_columns(out, {{"a", "bb", "c"}, {"aaa", "b", "1234"}}, 2);
  EXPECT_EQ(out.str(), "a    bb     c\naaa  b   1234\n");
}

TEST(Report, MemoryBesideTheFormulas) {
  Memory memory;
  const auto block = memory.allocate(400, Category::Gradients);
  for (const MemoryRow& row : memory_rows(memory, {400, 100, 800, std::nullopt})) {
    switch (row.category) {
      case Category::Parameters:
        EXPECT_EQ(row.predicted_bytes, 400);
        break;
      case Category::Gradients:
        EXPECT_EQ(row.predicted_bytes, 100);
        break;
      case Category::Optimizer:
        EXPECT_EQ(row.predicted_bytes, 800);
        break;
      default:
        EXPECT_FALSE(row.predicted_bytes.has_value());
    }
    EXPECT_EQ(row.peak_bytes, row.category == Category::Gradients ? 400u : 0u);
  }
}

TEST(Report, TrafficBesideTheFormula) {
  RunSummary summary = example();
  summary.strategy = "zero2";
  comm::CommRow small = summary.comm[0];
  small.algorithm = comm::Algorithm::Direct;  // another row of the same tag
  small.sent_bytes = 1'000'000;
  summary.traffic = traffic_rows({summary.comm[0], small}, {{"dp.grads", 4.5e6, 1e5}, {"zero2.params", 7, 8}}, 10);
  std::ostringstream out;
  print_traffic_table(out, summary);
  const auto lines = words_of(out.str());
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[2], (std::vector<std::string>{"dp.grads", "4.600", "4.500", "0.100"}));
  EXPECT_EQ(lines[3], (std::vector<std::string>{"zero2.params", "0.000", "0.000", "0.000"}));
  small.backend = "mpi";
  EXPECT_TRUE(traffic_rows({small}, {{"dp.grads", 4.5e6, 1e5}}, 10).empty());
}

TEST(StepLog, WritesOneObjectAStepAndASummary) {
  const auto path = std::filesystem::temp_directory_path() / ("sixfold_log_" + std::to_string(getpid()));
  StepResult step;
  step.step = 3;
  step.loss = 2.5;
  step.grad_norm = std::numeric_limits<double>::quiet_NaN();
  step.lr = 0.5f;
  step.num_tokens = 100;
  step.seconds = 0.25;
  step.comm_seconds = 0.05;
  step.exposed_seconds = 0.01;
  step.late_seconds = 0.004;
  {
    StepLog log(path);
    log.step(step);
    log.summary(example());
  }
  std::ifstream file(path);
  std::string first, second;
  std::getline(file, first);
  std::getline(file, second);
  std::filesystem::remove(path);
  EXPECT_EQ(first,
            R"({"step":3,"loss":2.5,"grad_norm":null,"lr":0.5,"tokens_per_s":400.0,"step_ms":250.0,"comm_ms":50.0,)"
            R"("exposed_comm_ms":10.0,"exposed_wait_ms":4.0})");
  const Json summary = Json::parse(second).at("summary");
  EXPECT_EQ(summary.at("val_loss"), 2.25);
  EXPECT_EQ(summary.at("weights_hash"), "00abcdef01234567");
  EXPECT_EQ(summary.at("evaluations").dump(), R"([{"step":5,"val_loss":3.5},{"step":10,"val_loss":2.25}])");
  EXPECT_EQ(summary.at("comm").at(0).dump(),
            R"({"tag":"dp.grads","primitive":"all_reduce","algorithm":"ring","backend":"own","group_size":4,)"
            R"("calls_per_step":2.0,"bytes_per_step":3000000.0,"sent_bytes_per_step":4500000.0,)"
            R"("predicted_sent_bytes_per_step":4500000.0,"ms_per_step":10.0,"exposed_ms_per_step":6.0,)"
            R"("wait_ms_per_step":3.0,"exposed_wait_ms_per_step":2.0})");
  for (const char* unknown : {"algorithm", "sent_bytes_per_step", "predicted_sent_bytes_per_step", "wait_ms_per_step",
                              "exposed_wait_ms_per_step"}) {
    EXPECT_TRUE(summary.at("comm").at(1).at(unknown).is_null()) << unknown;
  }
  EXPECT_EQ(summary.at("comm_outside").dump(),
            R"([{"tag":"dp.params","primitive":"broadcast","algorithm":"binomial","backend":"own","group_size":4,)"
            R"("calls":3.0,"bytes":3000000.0,"sent_bytes":3000000.0,"predicted_sent_bytes":3000000.0,"ms":500.0,)"
            R"("exposed_ms":400.0,"wait_ms":100.0,"exposed_wait_ms":100.0}])");
  EXPECT_EQ(summary.at("step_ms"), 200);
  EXPECT_EQ(summary.at("mean_step_ms"), 240);
  EXPECT_EQ(summary.at("median_step_ms"), 190);
  EXPECT_EQ(summary.at("primitives").at(1).dump(),
            R"({"primitive":"all_reduce","backend":"own","calls_per_step":2.0,"bytes_per_step":3000000.0,)"
            R"("sent_intra_bytes_per_step":3000000.0,"sent_inter_bytes_per_step":1500000.0,"ms_per_step":10.0,)"
            R"("exposed_ms_per_step":6.0,"exposed_wait_ms_per_step":2.0,"overlap":0.4})");
  EXPECT_TRUE(summary.at("primitives").at(0).at("exposed_wait_ms_per_step").is_null());
  EXPECT_EQ(summary.at("communication").at("ms_per_step"), 15);
  EXPECT_EQ(summary.at("communication").at("exposed_ms_per_step"), 12);
  EXPECT_TRUE(summary.at("communication").at("exposed_wait_ms_per_step").is_null());  // of MPI's
  EXPECT_EQ(summary.at("memory").dump(),
            R"([{"category":"parameters","peak_bytes":3000000,"predicted_bytes":3000000.0},)"
            R"({"category":"activations","peak_bytes":1500,"predicted_bytes":null}])");
  EXPECT_THROW(StepLog("/nonexistent/folder/log"), ConfigError);
}

StepResult step_result(int64_t step) {
  StepResult result;
  result.step = step;
  result.loss = 2.5;
  result.grad_norm = 1.25;
  result.lr = 0.001f;
  result.num_tokens = 500;
  result.seconds = step == 1 ? 100 : 2;  // the first is slow, and says nothing about the others
  return result;
}

TEST(Console, PlainLinesAreTwentyOrSo) {
  std::ostringstream out;
  Console console(out, {false, 200});
  for (int64_t step = 1; step <= 200; ++step) console.step(step_result(step));
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 21);  // 1, 10, 20, .. 200
  EXPECT_NE(text.find("step 190/200  loss 2.5000  norm 1.250  lr 1.00e-03  250 tokens/s  left 0:20\n"),
            std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(Console, ALiveLineIsRewrittenAndEndsBeforeOtherText) {
  std::ostringstream out;
  Console console(out, {true, 3});
  console.step(step_result(1));
  console.step(step_result(2));
  console.line("hello");
  console.step(step_result(3));
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 3);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);  // before and after hello, after the last step
  EXPECT_NE(text.find("\nhello\n\rstep 3/3"), std::string::npos);
}

TEST(Console, GeneratedBytesAreMadePrintable) {
  EXPECT_EQ(printable("a\tb\n~ "), "a\tb\n~ ");
  EXPECT_EQ(printable(std::string_view("\0\x1b\x7f\r", 4)), "????");
  EXPECT_EQ(printable("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x99\x82"), "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x99\x82");
  EXPECT_EQ(printable("\xc3z\xa4\xe2\x82"), "?z???");  // cut short, alone, cut off by the end
}

TEST(Console, Durations) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(725), "12:05");
  EXPECT_EQ(format_duration(11220), "3:07:00");
}

}  // namespace
}  // namespace sixfold::train
