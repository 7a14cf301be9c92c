#include "runtime/parallel/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "runtime/parallel/pipeline_check.h"
#include "tests/refusal.h"

namespace sixfold::parallel {
namespace {

using Kind = Action::Kind;
using test::expect_mentions;
using test::refusal;

constexpr PipelineKind kGPipe = PipelineKind::GPipe, kOneFOneB = PipelineKind::OneFOneB,
                       kInterleaved = PipelineKind::Interleaved;

/// "F0 F1 B0 B1": the computations of a stage; with chunks, "F0.1".
std::string computations(const std::vector<Action>& actions, bool with_chunks) {
  std::string text;
  for (const Action& a : actions) {
    if (!is_compute(a)) continue;
    text +=
        (text.empty() ? "" : " ") + std::string(a.kind == Kind::Forward ? "F" : "B") + std::to_string(a.micro_batch);
    if (with_chunks) text += "." + std::to_string(a.chunk);
  }
  return text;
}

std::vector<std::string> rows(const PipelineShape& shape) {
  std::vector<std::string> text;
  for (const auto& stage : pipeline_schedule(shape)) text.push_back(computations(stage, shape.virtual_stages > 1));
  return text;
}

// ---- Hand-written tables -------------------------------------------------------------------------------------------

TEST(PipelineSchedule, GPipe) {
  const std::string row = "F0 F1 F2 B0 B1 B2";
  EXPECT_EQ(rows({kGPipe, 3, 3, 1}), (std::vector<std::string>{row, row, row}));
}

// Figure 4 (top) of Narayanan et al., SC 2021, for four micro-batches.
TEST(PipelineSchedule, OneForwardOneBackward) {
  EXPECT_EQ(rows({kOneFOneB, 4, 5, 1}),
            (std::vector<std::string>{"F0 F1 F2 F3 B0 F4 B1 B2 B3 B4", "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4",
                                      "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4", "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4"}));
  EXPECT_EQ(rows({kOneFOneB, 3, 1, 1}), (std::vector<std::string>(3, "F0 B0")));
  EXPECT_EQ(rows({kOneFOneB, 1, 2, 1}), (std::vector<std::string>{"F0 B0 F1 B1"}));
}

// Figure 4 (bottom), for two stages of two chunks: stage 0 has parts 0 and 2 of the model, stage 1 parts 1 and 3.
TEST(PipelineSchedule, Interleaved) {
  EXPECT_EQ(
      rows({kInterleaved, 2, 4, 2}),
      (std::vector<std::string>{"F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0",
                                "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0"}));
}

TEST(PipelineSchedule, MessagesStandBesideWhatTheyServe) {
  const PipelineSchedule schedule = pipeline_schedule({kOneFOneB, 3, 1, 1});
  EXPECT_EQ(schedule[0], (std::vector<Action>{{Kind::Forward, 0, 0, -1},
                                              {Kind::SendActivation, 0, 0, 1},
                                              {Kind::RecvGradient, 0, 0, 1},
                                              {Kind::Backward, 0, 0, -1}}));
  EXPECT_EQ(schedule[1], (std::vector<Action>{{Kind::RecvActivation, 0, 0, 0},
                                              {Kind::Forward, 0, 0, -1},
                                              {Kind::SendActivation, 0, 0, 2},
                                              {Kind::RecvGradient, 0, 0, 2},
                                              {Kind::Backward, 0, 0, -1},
                                              {Kind::SendGradient, 0, 0, 0}}));
  EXPECT_EQ(schedule[2], (std::vector<Action>{{Kind::RecvActivation, 0, 0, 1},
                                              {Kind::Forward, 0, 0, -1},
                                              {Kind::Backward, 0, 0, -1},
                                              {Kind::SendGradient, 0, 0, 1}}));
  // From the last stage back to the first, where chunks go round.
  const PipelineSchedule ring = pipeline_schedule({kInterleaved, 2, 2, 2});
  EXPECT_NE(std::find(ring[1].begin(), ring[1].end(), Action{Kind::SendActivation, 0, 0, 0}), ring[1].end());
  EXPECT_NE(std::find(ring[0].begin(), ring[0].end(), Action{Kind::RecvActivation, 0, 1, 1}), ring[0].end());
}

// ---- Every schedule, proved ----------------------------------------------------------------------------------------

int expected_in_flight(const PipelineShape& shape, int stage) {
  const int p = shape.num_stages, m = shape.num_micro_batches, behind = p - 1 - stage;
  if (shape.kind == kGPipe) return m;
  if (shape.kind == kOneFOneB) return std::min(m, p - stage);
  return std::min(shape.virtual_stages * m, 2 * behind + (shape.virtual_stages - 1) * p + 1);
}

void expect_right(const PipelineShape& shape) {
  SCOPED_TRACE(pipeline_kind_name(shape.kind) + " p " + std::to_string(shape.num_stages) + " m " +
               std::to_string(shape.num_micro_batches) + " V " + std::to_string(shape.virtual_stages));
  const PipelineSchedule schedule = pipeline_schedule(shape);
  const PipelineCheck check = check_schedule(shape, schedule);
  ASSERT_EQ(check.fault, "");
  for (int stage = 0; stage < shape.num_stages; ++stage) {
    EXPECT_EQ(check.peak_in_flight[static_cast<size_t>(stage)], expected_in_flight(shape, stage)) << stage;
  }
  const int p = shape.num_stages, rounds = shape.virtual_stages * shape.num_micro_batches;
  for (double backward : {1.0, 2.0}) {
    const PipelineTimes times = simulate(shape, schedule, 1, backward);
    EXPECT_NEAR(times.total, (rounds + p - 1) * (1 + backward), 1e-9);
    EXPECT_NEAR(times.bubble, (p - 1.0) / (rounds + p - 1), 1e-12);
  }
  EXPECT_NEAR(bubble_formula(shape), (p - 1.0) / (rounds + p - 1), 1e-12);
  EXPECT_EQ(check_schedule(shape, forward_schedule(shape)).fault, "");
}

TEST(PipelineSchedule, EveryScheduleIsRightWithTheBubbleOfTheFormula) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 17; ++m) {
      expect_right({kGPipe, p, m, 1});
      expect_right({kOneFOneB, p, m, 1});
      for (int v = 2; v <= 4 && p >= 2 && m % p == 0; ++v) expect_right({kInterleaved, p, m, v});
    }
  }
  EXPECT_NEAR(bubble_formula({kOneFOneB, 4, 2, 1}), 0.6, 1e-12);
  EXPECT_NEAR(bubble_formula({kGPipe, 4, 8, 1}), 0.273, 5e-4);
  EXPECT_NEAR(bubble_formula({kInterleaved, 4, 8, 2}), 3.0 / 19, 1e-12);
}

TEST(PipelineSchedule, EvaluationNeedsNoMultipleOfTheStages) {
  for (int p = 2; p <= 5; ++p) {
    for (int m = 1; m <= 11; ++m) {
      for (int v = 1; v <= 3; ++v) {
        const PipelineShape shape{v == 1 ? kOneFOneB : kInterleaved, p, m, v};
        EXPECT_EQ(check_schedule(shape, forward_schedule(shape)).fault, "") << p << " " << m << " " << v;
      }
    }
  }
}

// ---- What the check finds ------------------------------------------------------------------------------------------

std::string fault_after(const std::function<void(PipelineSchedule&)>& damage) {
  const PipelineShape shape{kOneFOneB, 3, 4, 1};
  PipelineSchedule schedule = pipeline_schedule(shape);
  damage(schedule);
  return check_schedule(shape, schedule).fault;
}

size_t index_of(const std::vector<Action>& actions, const Action& action) {
  return static_cast<size_t>(std::find(actions.begin(), actions.end(), action) - actions.begin());
}

TEST(PipelineCheck, FindsWhatIsWrong) {
  EXPECT_EQ(fault_after([](auto&) {}), "");
  const auto erase = [](int stage, const Action& action) {
    return fault_after([&](PipelineSchedule& s) {
      auto& actions = s[static_cast<size_t>(stage)];
      const size_t at = index_of(actions, action);
      ASSERT_LT(at, actions.size());
      actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(at));
    });
  };
  const auto repeat = [](int stage, const Action& action) {
    return fault_after([&](PipelineSchedule& s) {
      auto& actions = s[static_cast<size_t>(stage)];
      actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(index_of(actions, action)), action);
    });
  };
  const auto swap = [](int stage, const Action& a, const Action& b) {
    return fault_after([&](PipelineSchedule& s) {
      auto& actions = s[static_cast<size_t>(stage)];
      std::swap(actions[index_of(actions, a)], actions[index_of(actions, b)]);
    });
  };
  expect_mentions(erase(2, {Kind::Backward, 3, 0, -1}), {"stage 2", "send gradient 3", "has not been computed"});
  expect_mentions(erase(0, {Kind::Backward, 3, 0, -1}), {"stage 0 runs 7 computations in place of 8"});
  expect_mentions(erase(1, {Kind::RecvActivation, 0, 0, 0}), {"stage 1", "forward 0", "its input is not there"});
  expect_mentions(erase(1, {Kind::SendActivation, 1, 0, 2}),
                  {"stage 2", "receive activation 1", "brings micro-batch 2"});
  expect_mentions(erase(0, {Kind::SendActivation, 3, 0, 1}), {"stage 0", "waits for good"});
  expect_mentions(erase(0, {Kind::RecvGradient, 3, 0, 1}), {"stage 0", "backward 3", "its input is not there"});
  expect_mentions(repeat(0, {Kind::Forward, 1, 0, -1}), {"stage 0", "forward 1", "runs twice"});
  expect_mentions(swap(0, {Kind::Forward, 0, 0, -1}, {Kind::Forward, 1, 0, -1}), {"stage 0", "has not been computed"});
  expect_mentions(swap(2, {Kind::Backward, 1, 0, -1}, {Kind::Backward, 2, 0, -1}), {"stage 2", "forward has not run"});
  // A stage that wants the gradient before it has sent what it is the gradient of.
  expect_mentions(swap(1, {Kind::SendActivation, 0, 0, 2}, {Kind::RecvGradient, 0, 0, 2}), {"waits for good"});
  expect_mentions(fault_after([](PipelineSchedule& s) {
                    for (auto& actions : s) std::erase_if(actions, [](const Action& a) { return a.micro_batch == 3; });
                  }),
                  {"stage 0 runs 6 computations in place of 8"});
  expect_mentions(fault_after([](PipelineSchedule& s) {
                    s[0].push_back({Kind::SendActivation, 0, 0, 1});
                  }),
                  {"stage 0", "has not been computed"});
  expect_mentions(
      fault_after([](PipelineSchedule& s) {
        s[1].erase(s[1].begin() + static_cast<std::ptrdiff_t>(index_of(s[1], {Kind::RecvGradient, 3, 0, 2})));
        std::erase(s[1], Action{Kind::Backward, 3, 0, -1});
        std::erase(s[1], Action{Kind::SendGradient, 3, 0, 0});
        std::erase(s[0], Action{Kind::RecvGradient, 3, 0, 1});
        std::erase(s[0], Action{Kind::Backward, 3, 0, -1});
      }),
      {"stage 1 never receives micro-batch 3 of part 2"});
  expect_mentions(fault_after([](PipelineSchedule& s) { s[0].front().micro_batch = 4; }), {"no such micro-batch"});
  expect_mentions(fault_after([](PipelineSchedule& s) { s[0][1].peer = 3; }), {"no such stage"});
}

// Two stages that each send twice before they receive: fine with two messages a lane, not with one.
TEST(PipelineCheck, HoldsOneMessageALane) {
  const PipelineShape shape{kGPipe, 2, 4, 1};
  PipelineSchedule schedule = pipeline_schedule(shape);
  EXPECT_EQ(check_schedule(shape, schedule).fault, "");
  // Stage 1 receives its second input only after it has the gradients' lane full of two messages.
  schedule[1] = {{Kind::RecvActivation, 0, 0, 0}, {Kind::Forward, 0, 0, -1},       {Kind::Backward, 0, 0, -1},
                 {Kind::SendGradient, 0, 0, 0},   {Kind::RecvActivation, 1, 0, 0}, {Kind::Forward, 1, 0, -1},
                 {Kind::Backward, 1, 0, -1},      {Kind::SendGradient, 1, 0, 0},   {Kind::RecvActivation, 2, 0, 0},
                 {Kind::Forward, 2, 0, -1},       {Kind::Backward, 2, 0, -1},      {Kind::SendGradient, 2, 0, 0},
                 {Kind::RecvActivation, 3, 0, 0}, {Kind::Forward, 3, 0, -1},       {Kind::Backward, 3, 0, -1},
                 {Kind::SendGradient, 3, 0, 0}};
  expect_mentions(check_schedule(shape, schedule).fault, {"waits for good"});
}

// ---- Refusals, layers, picture -------------------------------------------------------------------------------------

TEST(PipelineSchedule, RefusesWhatCannotBeWithTheAllowedValues) {
  const auto refused = [](const PipelineShape& shape) { return refusal([&] { pipeline_schedule(shape); }); };
  for (int p : {2, 3, 4}) {
    for (int m : {1, 2, 3, 4, 5, 8}) {
      if (m % p == 0) {
        EXPECT_EQ(refused({kInterleaved, p, m, 2}), "(accepted)");
      } else {
        expect_mentions(
            refused({kInterleaved, p, m, 2}),
            {"--pp-schedule interleaved", "with " + std::to_string(m) + " micro-batches", "--pp " + std::to_string(p),
             std::to_string(p) + ", " + std::to_string(2 * p) + ", " + std::to_string(3 * p), "--global-batch",
             "gpipe, 1f1b"});
      }
    }
  }
  expect_mentions(refused({kInterleaved, 2, 2, 1}), {"--virtual-stages 1", "from 2 on"});
  expect_mentions(refused({kInterleaved, 1, 2, 2}), {"--pp 1", "--pp 2 or more"});
  expect_mentions(refused({kOneFOneB, 2, 2, 2}), {"--virtual-stages 2", "--pp-schedule 1f1b", "allowed is 1"});
  expect_mentions(refusal([] { parse_pipeline_kind("2f2b"); }), {"--pp-schedule 2f2b", "gpipe, 1f1b, interleaved"});
  for (PipelineKind kind : {kGPipe, kOneFOneB, kInterleaved}) {
    EXPECT_EQ(parse_pipeline_kind(pipeline_kind_name(kind)), kind);
  }
}

TEST(SplitLayers, EveryLayerOnce) {
  for (int64_t layers = 1; layers <= 40; ++layers) {
    for (int p = 1; p <= 8; ++p) {
      if (layers < p) {
        expect_mentions(refusal([&] { split_layers(layers, p, 1); }),
                        {"--layers " + std::to_string(layers), "--pp " + std::to_string(p),
                         "--pp 1 to " + std::to_string(layers), "--layers " + std::to_string(p) + " or more"});
        continue;
      }
      const std::vector<int64_t> counts = split_layers(layers, p, 1);
      ASSERT_EQ(counts.size(), static_cast<size_t>(p));
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), layers);
      EXPECT_TRUE(std::is_sorted(counts.rbegin(), counts.rend()));
      EXPECT_LE(counts.front() - counts.back(), 1);
      EXPECT_GE(counts.back(), 1);
    }
  }
  EXPECT_EQ(split_layers(30, 4, 1), (std::vector<int64_t>{8, 8, 7, 7}));
  EXPECT_EQ(split_layers(10, 3, 1), (std::vector<int64_t>{4, 3, 3}));
  EXPECT_EQ(split_layers(5, 2, 2), (std::vector<int64_t>{2, 1, 1, 1}));
  expect_mentions(refusal([] { split_layers(5, 3, 2); }),
                  {"--layers 5", "--pp 3", "--virtual-stages 2", "--layers 6 or more", "--pp 1 to 2"});
}

TEST(PipelineCheck, DrawsARowAStage) {
  const PipelineShape shape{kOneFOneB, 2, 3, 1};
  EXPECT_EQ(draw_schedule(shape, pipeline_schedule(shape)),
            "stage 0 | F0 F1       B0--- F2 B1---    B2---\n"
            "stage 1 |    F0 B0--- F1 B1--- F2 B2---\n"
            "bubble 25.0% with a backward twice as long as a forward; by the formula 25.0%\n");
  const PipelineShape chunks{kInterleaved, 2, 2, 2};
  EXPECT_EQ(draw_schedule(chunks, pipeline_schedule(chunks)),
            "stage 0 | F0.0 F1.0 F0.1 F1.1           B0.1-----      B1.1----- B0.0----- B1.0-----\n"
            "stage 1 |      F0.0 F1.0 F0.1 B0.1----- F1.1 B1.1----- B0.0----- B1.0-----\n"
            "bubble 20.0% with a backward twice as long as a forward; by the formula 20.0%\n");
}

}  // namespace
}  // namespace sixfold::parallel
