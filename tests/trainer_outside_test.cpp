// What the trainer does beside its steps: evaluations, and that nothing outside is counted as the steps'.
#include <map>
#include <set>

#include "tests/trainer_rig.h"

namespace sixfold::test {
namespace {

using train::StepResult;

INSTANTIATE_TEST_SUITE_P(Zero, TrainerOfStage, testing::Values(0, 1, 2, 3));

// Of start-up, evaluations and whoever looks at gradients, nothing is counted as the steps'; what was exposed in steps
// is what their results say, and within their time.
TEST_P(TrainerOfStage, StepsAreToldFromWhatIsOutside) {
  TrainerJob job = stage_job();
  comm::WorldOptions options;
  options.comm_log_bytes = size_t{1} << 20;
  run_ranks(
      2,
      [&](comm::World& world) {
        Replica replica(world, job);
        std::vector<StepResult> results;
        const auto look = [&](int64_t) {
          float x = 1;
          world.group().all_reduce({&x, 1, DType::F32}, {&x, 1, DType::F32}, ReduceOp::Sum, {.tag = "look"}).wait();
        };
        for (int i = 0; i < 3; ++i) {
          results.push_back(replica.trainer.step(look));
          replica.trainer.evaluate(mixed_rows, 8);
        }
        const auto calls_of = [&](comm::CommPhase phase, const std::string& tag) {
          int64_t calls = 0;
          for (const comm::CommRow& row : world.comm_table().rows(phase)) calls += row.tag == tag ? row.calls : 0;
          return calls;
        };
        using enum comm::CommPhase;
        for (const char* tag : {"dp.tokens", "dp.loss"}) {
          EXPECT_EQ(calls_of(Step, tag), 3) << tag;
          EXPECT_EQ(calls_of(Outside, tag), 0) << tag;
        }
        for (const char* tag : {"dp.params", "dp.eval", "look"}) {
          EXPECT_EQ(calls_of(Step, tag), 0) << tag;
          EXPECT_GT(calls_of(Outside, tag), 0) << tag;
        }
        double exposed = 0, exposed_of_results = 0;
        for (const comm::CommRow& row : world.comm_table().rows(Step)) exposed += row.exposed_seconds;
        for (const StepResult& result : results) {
          EXPECT_LE(result.exposed_seconds, result.seconds);
          exposed_of_results += result.exposed_seconds;
        }
        EXPECT_NEAR(exposed, exposed_of_results, 1e-9);
        std::map<std::string, std::set<int32_t>> steps;
        const comm::RankRecords records = world.comm_log()->records(world.rank());
        for (const comm::LoggedOperation& op : records.operations) steps[records.rows[op.row].tag].insert(op.step);
        EXPECT_EQ(steps["dp.tokens"], (std::set<int32_t>{1, 2, 3}));
        for (const char* tag : {"dp.params", "dp.eval", "look"}) EXPECT_EQ(steps[tag], std::set<int32_t>{0}) << tag;
        for (const comm::ComputeSpan& span : records.spans) {
          EXPECT_TRUE(span.step > 0 || span.kind == comm::ComputeSpan::Kind::Forward);
        }
      },
      options);
}

TEST_P(TrainerOfStage, EvaluatesRowsThatDoNotDivide) {
  for (int num_ranks : {1, 2, 3}) {
    for (int64_t num_rows : {1, 5, 7, 12, 13}) {
      TrainerJob job = stage_job();
      job.global_batch = 12;
      job.micro_batch = 2;
      run_ranks(num_ranks, [&](comm::World& world) {
        Replica replica(world, job);
        replica.trainer.step();
        const std::vector<float> before = replica.all(false);
        Oracle oracle;
        oracle.step(0, 12);
        oracle.update();
        EXPECT_NEAR(replica.trainer.evaluate(mixed_rows, num_rows), oracle.mean_loss(0, num_rows, false), 1e-6);
        EXPECT_EQ(replica.all(false), before);
        const StepResult result = replica.trainer.step();  // training goes on as if nothing had been
        EXPECT_NEAR(result.loss, oracle.step(1, 12), 1e-6);
      });
    }
  }
}

}  // namespace
}  // namespace sixfold::test
