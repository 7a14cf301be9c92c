#include "runtime/parallel/pipeline_schedule.h"

#include <algorithm>

#include "runtime/core/error.h"

namespace sixfold::parallel {

namespace {

using Kind = Action::Kind;

/// The computations of one stage without the messages.
struct Computation {
  bool forward;
  int micro_batch;
  int chunk;
};

/// Forward or backward number `k` of a stage: p micro-batches through chunk 0, the same through chunk 1, ..., then the
/// next p micro-batches. Backwards take the chunks in the other direction.
Computation computation(const PipelineShape& shape, bool forward, int k) {
  const int p = shape.num_stages, in_round = p * shape.virtual_stages;
  const int first = k / in_round * p;                              // micro-batch of the round
  const int width = std::min(p, shape.num_micro_batches - first);  // the last round of an evaluation may be narrower
  const int at = k - first * shape.virtual_stages, chunk = at / width;
  return {forward, first + at % width, forward ? chunk : shape.virtual_stages - 1 - chunk};
}

/// `warmup` forwards, then a forward and a backward in turn, then backwards.
std::vector<Computation> one_f_one_b(const PipelineShape& shape, int warmup) {
  const int total = shape.num_micro_batches * shape.virtual_stages;
  std::vector<Computation> list;
  int forwards = 0;
  while (forwards < std::min(warmup, total)) list.push_back(computation(shape, true, forwards++));
  for (int backwards = 0; backwards < total; ++backwards) {
    if (forwards < total) list.push_back(computation(shape, true, forwards++));
    list.push_back(computation(shape, false, backwards));
  }
  return list;
}

/// Forwards that a stage runs before its first pair of forward and backward.
int warmup_of(const PipelineShape& shape, int stage) {
  const int behind = shape.num_stages - 1 - stage;
  switch (shape.kind) {
    case PipelineKind::GPipe:
      return shape.num_micro_batches;
    case PipelineKind::OneFOneB:
      return behind;
    default:
      return 2 * behind + (shape.virtual_stages - 1) * shape.num_stages;
  }
}

/// The computations with what they receive before them and send after them.
std::vector<Action> with_messages(const PipelineShape& shape, int stage, const std::vector<Computation>& list) {
  const int p = shape.num_stages, last_part = shape.num_chunks() - 1;
  const int next = (stage + 1) % p, previous = (stage + p - 1) % p;
  std::vector<Action> actions;
  for (const auto& [forward, m, chunk] : list) {
    const int part = chunk * p + stage;
    if (forward) {
      if (part > 0) actions.push_back({Kind::RecvActivation, m, chunk, previous});
      actions.push_back({Kind::Forward, m, chunk});
      if (part < last_part) actions.push_back({Kind::SendActivation, m, chunk, next});
    } else {
      if (part < last_part) actions.push_back({Kind::RecvGradient, m, chunk, next});
      actions.push_back({Kind::Backward, m, chunk});
      if (part > 0) actions.push_back({Kind::SendGradient, m, chunk, previous});
    }
  }
  return actions;
}

std::string multiples_of(int p) {
  return std::to_string(p) + ", " + std::to_string(2 * p) + ", " + std::to_string(3 * p) + ", ...";
}

}  // namespace

bool is_compute(const Action& action) {
  return action.kind == Kind::Forward || action.kind == Kind::Backward;
}

std::string to_string(const Action& action) {
  const char* const names[] = {"forward",       "backward",        "send activation", "receive activation",
                               "send gradient", "receive gradient"};
  const bool sends = action.kind == Kind::SendActivation || action.kind == Kind::SendGradient;
  std::string text = std::string(names[static_cast<size_t>(action.kind)]) + " " + std::to_string(action.micro_batch) +
                     " of chunk " + std::to_string(action.chunk);
  if (!is_compute(action)) text += (sends ? " to stage " : " from stage ") + std::to_string(action.peer);
  return text;
}

std::string pipeline_kind_name(PipelineKind kind) {
  const char* const names[] = {"gpipe", "1f1b", "interleaved"};
  return names[static_cast<size_t>(kind)];
}

PipelineKind parse_pipeline_kind(const std::string& name) {
  for (PipelineKind kind : {PipelineKind::GPipe, PipelineKind::OneFOneB, PipelineKind::Interleaved}) {
    if (pipeline_kind_name(kind) == name) return kind;
  }
  throw ConfigError("--pp-schedule " + name + ": allowed values are gpipe, 1f1b, interleaved");
}

void check_pipeline_shape(const PipelineShape& shape) {
  SIXFOLD_CHECK_LE(1, shape.num_stages, "stages of a pipeline");
  SIXFOLD_CHECK_LE(1, shape.num_micro_batches, "micro-batches of a step");
  const std::string virtual_stages = "--virtual-stages " + std::to_string(shape.virtual_stages);
  const std::string schedule = "--pp-schedule " + pipeline_kind_name(shape.kind);
  if (shape.kind != PipelineKind::Interleaved) {
    if (shape.virtual_stages != 1) {
      throw ConfigError(virtual_stages + " with " + schedule + ": allowed is 1; more with --pp-schedule interleaved");
    }
    return;
  }
  const std::string stages = "--pp " + std::to_string(shape.num_stages);
  if (shape.num_stages < 2) {
    throw ConfigError(schedule + " with " + stages +
                      ": has nothing to interleave; allowed are --pp 2 or more, or "
                      "--pp-schedule gpipe, 1f1b");
  }
  if (shape.virtual_stages < 2) {
    throw ConfigError(virtual_stages + " with " + schedule + ": allowed are whole numbers from 2 on");
  }
  if (shape.num_micro_batches % shape.num_stages != 0) {
    throw ConfigError(schedule + " with " + std::to_string(shape.num_micro_batches) + " micro-batches a step on " +
                      stages + ": allowed are multiples of the stages, " + multiples_of(shape.num_stages) +
                      " (--global-batch / --dp / --micro-batch), or --pp-schedule gpipe, 1f1b");
  }
}

PipelineSchedule pipeline_schedule(const PipelineShape& shape) {
  check_pipeline_shape(shape);
  PipelineSchedule schedule;
  for (int stage = 0; stage < shape.num_stages; ++stage) {
    schedule.push_back(with_messages(shape, stage, one_f_one_b(shape, warmup_of(shape, stage))));
  }
  return schedule;
}

PipelineSchedule forward_schedule(const PipelineShape& shape) {
  PipelineSchedule schedule;
  for (int stage = 0; stage < shape.num_stages; ++stage) {
    std::vector<Computation> list;
    for (int k = 0; k < shape.num_micro_batches * shape.virtual_stages; ++k) {
      list.push_back(computation(shape, true, k));
    }
    schedule.push_back(with_messages(shape, stage, list));
  }
  return schedule;
}

double bubble_formula(const PipelineShape& shape) {
  const double idle = shape.num_stages - 1;
  return idle / (shape.virtual_stages * shape.num_micro_batches + idle);
}

std::vector<int64_t> split_layers(int64_t num_layers, int num_stages, int virtual_stages) {
  const int64_t num_chunks = int64_t{num_stages} * virtual_stages;
  if (num_layers < num_chunks) {
    const std::string chunks = virtual_stages == 1 ? "" : " --virtual-stages " + std::to_string(virtual_stages);
    throw ConfigError("--layers " + std::to_string(num_layers) + " with --pp " + std::to_string(num_stages) + chunks +
                      ": every stage needs a layer" + (virtual_stages == 1 ? "" : " in each of its chunks") +
                      "; allowed are --layers " + std::to_string(num_chunks) + " or more, or --pp 1 to " +
                      std::to_string(std::max<int64_t>(num_layers / virtual_stages, 1)));
  }
  std::vector<int64_t> counts(static_cast<size_t>(num_chunks), num_layers / num_chunks);
  for (int64_t i = 0; i < num_layers % num_chunks; ++i) ++counts[static_cast<size_t>(i)];
  return counts;
}

}  // namespace sixfold::parallel
