// Pipeline schedules: what each stage of a pipeline does in a step, one action after the other. Pure functions.
//
// The layers of a model are cut into p x V *chunks*, V a stage: chunk c of stage s is part number c p + s of the model,
// so that activations run p times round the stages' ring where V > 1. With p stages and m micro-batches:
//
//   gpipe         all forwards, then all backwards               bubble (p-1) / (m + p-1)    in flight m
//   1f1b          p-1-s forwards, then a forward and a           bubble (p-1) / (m + p-1)    in flight min(m, p - s)
//                 backward in turn, then what is left
//   interleaved   the same over V chunks, p micro-batches of     bubble (p-1) / (V m + p-1)  in flight, chunks:
//                 a chunk at a time; p divides m                                             min(V m, 2(p-1-s) + (V-1)p
//                 + 1)
//
// bubble: the share of the stages' time that passes without work, where all chunks take as long; in flight: activations
// that stage s holds at its peak. Sources: gpipe: Huang et al., "GPipe", NeurIPS 2019; 1f1b: Narayanan et al.,
// "PipeDream", SOSP 2019, in its flushing form; interleaved: Narayanan et al., "Efficient large-scale language model
// training on GPU clusters", SC 2021, section 2.2.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sixfold::parallel {

/// What one pipeline stage does next. Messages of one pair of stages and kind have a lane of their own, and keep their
/// order.
struct Action {
  enum class Kind : uint8_t {
    Forward,         // of one chunk, from the embedding's tokens or what was received
    Backward,        // of one chunk, from the loss or what was received
    SendActivation,  // the output of the chunk's forward, to `peer`
    RecvActivation,  // the input of the chunk's forward, from `peer`
    SendGradient,    // the gradient of the chunk's input, to `peer`
    RecvGradient,    // the gradient of the chunk's output, from `peer`
  } kind = Kind::Forward;
  int micro_batch = 0;
  int chunk = 0;  // of this stage, 0 .. virtual_stages - 1
  int peer = -1;  // the other stage of a message
  bool operator==(const Action&) const = default;
};
bool is_compute(const Action& action);
/// "forward 3 of chunk 1", "send gradient 0 of chunk 0 to stage 2": for error messages.
std::string to_string(const Action& action);

enum class PipelineKind : uint8_t { GPipe, OneFOneB, Interleaved };
/// "gpipe", "1f1b", "interleaved"; parse throws ConfigError for anything else.
std::string pipeline_kind_name(PipelineKind kind);
PipelineKind parse_pipeline_kind(const std::string& name);

struct PipelineShape {
  PipelineKind kind = PipelineKind::OneFOneB;
  int num_stages = 1;
  int num_micro_batches = 1;
  int virtual_stages = 1;  // chunks a stage; more than 1 with interleaved, else 1

  int num_chunks() const { return num_stages * virtual_stages; }
};
/// Throws ConfigError, naming flags, values and allowed values: virtual stages without interleaved or the other way
/// round, and with interleaved a number of micro-batches that the stages do not divide.
void check_pipeline_shape(const PipelineShape& shape);

/// By stage, what it does in a step. Backwards of a chunk run in the order of micro-batches. Throws as
/// check_pipeline_shape.
using PipelineSchedule = std::vector<std::vector<Action>>;
PipelineSchedule pipeline_schedule(const PipelineShape& shape);
/// Forwards alone, of any number of micro-batches, for evaluation. The kind does not matter.
PipelineSchedule forward_schedule(const PipelineShape& shape);

/// The share of idle time by the formula above.
double bubble_formula(const PipelineShape& shape);

/// Layers of each of `num_chunks` parts of the model, in its order: as equal as can be, the larger ones first. Throws
/// ConfigError for fewer layers than chunks. (30 layers, 4): 8, 8, 7, 7.
std::vector<int64_t> split_layers(int64_t num_layers, int num_stages, int virtual_stages);

}  // namespace sixfold::parallel
