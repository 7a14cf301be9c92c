#include "runtime/parallel/pipeline_check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "runtime/core/error.h"

namespace sixfold::parallel {

namespace {

using Kind = Action::Kind;

bool is_activation(Kind kind) {
  return kind == Kind::Forward || kind == Kind::SendActivation || kind == Kind::RecvActivation;
}

/// A tensor that travels or is computed: the output of part `part` of the model, or the gradient of its input.
struct Item {
  bool activation;
  int part, micro_batch;
  bool operator<(const Item& other) const {
    return std::tie(activation, part, micro_batch) < std::tie(other.activation, other.part, other.micro_batch);
  }
  bool operator==(const Item&) const = default;
};

/// Replays all stages, each as far as it can get, in turn. Time is kept as the lists go: a message is there as soon as
/// it is sent.
class Replay {
 public:
  Replay(const PipelineShape& shape, const PipelineSchedule& schedule, double forward, double backward)
      : shape_(shape), schedule_(schedule), duration_{forward, backward}, stages_(schedule.size()) {
    result.peak_in_flight.assign(schedule.size(), 0);
    times.stages.resize(schedule.size());
  }

  void run() {
    for (bool moved = true; moved && result.ok();) {
      moved = false;
      for (size_t s = 0; s < schedule_.size(); ++s) {
        while (result.ok() && stages_[s].next < schedule_[s].size() && step(s)) {
          ++stages_[s].next;
          moved = true;
        }
      }
    }
    if (result.ok()) check_end();
    if (result.ok()) finish_times();
  }

  PipelineCheck result;
  PipelineTimes times;

 private:
  struct Stage {
    size_t next = 0;             // first action that has not run
    std::map<Item, double> has;  // computed or received, and when
    std::set<Item> done;         // computations, named by what they make
    std::vector<int> num_backwards;
    int in_flight = 0;
    double now = 0;
  };
  /// One message that was sent and not received, and when it was sent.
  using Lane = std::optional<std::pair<Item, double>>;

  void fail(size_t stage, const std::string& why) {
    if (!result.ok()) return;
    const size_t at = std::min(stages_[stage].next, schedule_[stage].size() - 1);
    result.fault = "stage " + std::to_string(stage) + ", action " + std::to_string(at) + ", " +
                   to_string(schedule_[stage][at]) + ": " + why;
  }
  int part_of(size_t stage, const Action& action) const {
    return action.chunk * shape_.num_stages + static_cast<int>(stage);
  }

  /// False: it has to wait.
  bool step(size_t s) {
    const Action& action = schedule_[s][stages_[s].next];
    if (action.micro_batch < 0 || action.micro_batch >= shape_.num_micro_batches || action.chunk < 0 ||
        action.chunk >= shape_.virtual_stages) {
      fail(s, "there is no such micro-batch or chunk");
      return false;
    }
    if (is_compute(action)) return compute(s, action), result.ok();
    if (action.peer < 0 || action.peer >= static_cast<int>(schedule_.size())) {
      fail(s, "there is no such stage");
      return false;
    }
    const bool sends = action.kind == Kind::SendActivation || action.kind == Kind::SendGradient;
    return sends ? send(s, action) : receive(s, action);
  }

  void compute(size_t s, const Action& action) {
    Stage& stage = stages_[s];
    const bool forward = action.kind == Kind::Forward;
    const int part = part_of(s, action), m = action.micro_batch;
    const bool starts = forward ? part == 0 : part == shape_.num_chunks() - 1;
    double ready = stage.now;
    if (!starts) {
      const auto input = stage.has.find({forward, forward ? part - 1 : part + 1, m});
      if (input == stage.has.end()) return fail(s, "its input is not there");
      ready = std::max(ready, input->second);
      stage.has.erase(input);
    }
    if (!forward && !stage.done.count({true, part, m})) return fail(s, "its forward has not run");
    if (!stage.done.insert({forward, part, m}).second) return fail(s, "it runs twice");
    if (!forward) {
      stage.num_backwards.resize(static_cast<size_t>(shape_.virtual_stages));
      if (stage.num_backwards[static_cast<size_t>(action.chunk)]++ != m) {
        return fail(s, "backwards run in the order of micro-batches");
      }
    }
    stage.in_flight += forward ? 1 : -1;
    result.peak_in_flight[s] = std::max(result.peak_in_flight[s], stage.in_flight);
    stage.now = ready + (forward ? duration_[0] : duration_[1]);
    times.stages[s].push_back({action, ready, stage.now});
    stage.has[{forward, part, m}] = stage.now;
  }

  Lane& lane(int from, int to, Kind kind) { return lanes_[{from, to, is_activation(kind)}]; }

  bool send(size_t s, const Action& action) {
    Stage& stage = stages_[s];
    Lane& out = lane(static_cast<int>(s), action.peer, action.kind);
    if (out) return false;
    const Item item{action.kind == Kind::SendActivation, part_of(s, action), action.micro_batch};
    const auto found = stage.has.find(item);
    if (found == stage.has.end()) return fail(s, "it has not been computed"), false;
    out = {item, found->second};
    stage.has.erase(found);
    return true;
  }

  bool receive(size_t s, const Action& action) {
    Lane& in = lane(action.peer, static_cast<int>(s), action.kind);
    if (!in) return false;
    const bool activation = action.kind == Kind::RecvActivation;
    const Item wanted{activation, part_of(s, action) + (activation ? -1 : 1), action.micro_batch};
    if (!(in->first == wanted)) {
      return fail(s, "the lane brings micro-batch " + std::to_string(in->first.micro_batch) + " of part " +
                         std::to_string(in->first.part)),
             false;
    }
    stages_[s].has[wanted] = in->second;
    in.reset();
    return true;
  }

  void check_end() {
    for (size_t s = 0; s < schedule_.size(); ++s) {
      if (stages_[s].next < schedule_[s].size()) return fail(s, "waits for good");
    }
    for (const auto& [key, message] : lanes_) {
      if (message) {
        result.fault = "stage " + std::to_string(std::get<1>(key)) + " never receives micro-batch " +
                       std::to_string(message->first.micro_batch) + " of part " + std::to_string(message->first.part);
        return;
      }
    }
    const bool trains = std::any_of(stages_.begin(), stages_.end(), [](auto& s) { return !s.num_backwards.empty(); });
    const auto wanted = static_cast<size_t>((trains ? 2 : 1) * shape_.num_micro_batches * shape_.virtual_stages);
    for (size_t s = 0; s < schedule_.size(); ++s) {
      if (stages_[s].done.size() != wanted && result.ok()) {
        result.fault = "stage " + std::to_string(s) + " runs " + std::to_string(stages_[s].done.size()) +
                       " computations in place of " + std::to_string(wanted);
      }
    }
  }

  void finish_times() {
    double work = 0;
    for (const auto& stage : times.stages) {
      for (const TimedAction& timed : stage) {
        times.total = std::max(times.total, timed.end);
        work += timed.end - timed.start;
      }
    }
    times.bubble = 1 - work / (times.total * static_cast<double>(times.stages.size()));
  }

  const PipelineShape& shape_;
  const PipelineSchedule& schedule_;
  const double duration_[2];
  std::vector<Stage> stages_;
  std::map<std::tuple<int, int, bool>, Lane> lanes_;  // by sender, receiver and kind
};

}  // namespace

PipelineCheck check_schedule(const PipelineShape& shape, const PipelineSchedule& schedule) {
  SIXFOLD_CHECK_EQ(schedule.size(), static_cast<size_t>(shape.num_stages), "stages with a list");
  Replay replay(shape, schedule, 1, 1);
  replay.run();
  return replay.result;
}

PipelineTimes simulate(const PipelineShape& shape, const PipelineSchedule& schedule, double forward, double backward) {
  SIXFOLD_CHECK_EQ(schedule.size(), static_cast<size_t>(shape.num_stages), "stages with a list");
  Replay replay(shape, schedule, forward, backward);
  replay.run();
  SIXFOLD_CHECK(replay.result.ok(), replay.result.fault);
  return replay.times;
}

std::string draw_schedule(const PipelineShape& shape, const PipelineSchedule& schedule) {
  const PipelineTimes times = simulate(shape, schedule, 1, 2);
  const auto label = [&](const Action& action) {
    std::string text = (action.kind == Kind::Forward ? "F" : "B") + std::to_string(action.micro_batch);
    if (shape.virtual_stages > 1) text += "." + std::to_string(action.chunk);
    return text;
  };
  const size_t width = label({Kind::Forward, shape.num_micro_batches - 1, shape.virtual_stages - 1}).size() + 1;
  std::string text;
  for (size_t s = 0; s < schedule.size(); ++s) {
    std::string row(static_cast<size_t>(std::lround(times.total)) * width, ' ');
    for (const TimedAction& timed : times.stages[s]) {
      const auto begin = static_cast<size_t>(std::lround(timed.start)) * width;
      const auto length = static_cast<size_t>(std::lround(timed.end)) * width - begin;
      std::string cell = label(timed.action);
      cell.resize(length - 1, timed.action.kind == Kind::Forward ? ' ' : '-');
      row.replace(begin, cell.size(), cell);
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += "stage " + std::to_string(s) + " | " + row + "\n";
  }
  char line[160];
  std::snprintf(line, sizeof(line), "bubble %.1f%% with a backward twice as long as a forward; by the formula %.1f%%\n",
                100 * times.bubble, 100 * bubble_formula(shape));
  return text + line;
}

}  // namespace sixfold::parallel
