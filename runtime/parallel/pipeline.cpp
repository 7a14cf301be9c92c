#include "runtime/parallel/pipeline.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "runtime/parallel/call_options.h"

namespace sixfold::parallel {

namespace {

using Kind = Action::Kind;
using Clock = std::chrono::steady_clock;

constexpr size_t kMaxDims = 7;
/// Of a shape's announcement: tokens of the micro-batch, number of dims, dims.
constexpr int64_t kHeaderLength = kMaxDims + 2;

constexpr int kActivationLane = 0, kGradientLane = 1;

/// What evaluation sends has a tag of its own, so that the bytes of steps can be told.
comm::Options options_of(const kernels::Context& context, Kind kind, bool training) {
  const bool activation = kind == Kind::SendActivation || kind == Kind::RecvActivation;
  comm::Options options = call_options(context, !activation ? "pp.gradient"
                                                : training  ? "pp.activation"
                                                            : "pp.activation.eval");
  options.lane = activation ? kActivationLane : kGradientLane;
  return options;
}

comm::Options header_options(const kernels::Context& context) {
  comm::Options options = call_options(context, "pp.shape");
  options.lane = kActivationLane;
  return options;
}

bool is_receive(const Action& action) {
  return action.kind == Kind::RecvActivation || action.kind == Kind::RecvGradient;
}

std::pair<int, int> key_of(const Action& action) {
  return {action.chunk, action.micro_batch};
}

/// Takes out what an earlier action has left for this one.
template <typename Values>
auto take(Values& values, const Action& action) {
  auto node = values.extract(key_of(action));
  SIXFOLD_CHECK(!node.empty(), to_string(action) + ": what it needs is not there");
  return std::move(node.mapped());
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Pipeline::Pipeline(PipelineParts parts)
    : parts_(std::move(parts)),
      stage_(parts_.group == nullptr ? 0 : parts_.group->rank()),
      num_stages_(parts_.group == nullptr ? 1 : parts_.group->size()) {
  SIXFOLD_CHECK_LE(size_t{1}, parts_.chunks.size(), "chunks of a stage");
  if (parts_.log == nullptr) return;
  for (const UnitList& units : parts_.chunks) {
    std::vector<int32_t>& numbers = log_units_.emplace_back();
    for (const Unit* unit : units) numbers.push_back(parts_.log->unit(unit->name()));
  }
}

// ---- The list ------------------------------------------------------------------------------------------------------

PipelineRun Pipeline::run(std::span<const Action> actions, std::span<const MicroBatch> batches,
                          const LossScale& loss_scale) {
  const auto capacity = static_cast<int64_t>(batches.size());
  const Tensor losses = Tensor::empty({capacity}, DType::F32, parts_.context.memory, Category::Other);
  int64_t count = 0;
  PipelineRun run = execute({actions, batches, loss_scale, nullptr,
                             [&](const Tensor& y) { kernels::copy(parts_.context, y, losses.slice(count++, {1})); }});
  run.losses = losses.slice(0, {count});
  return run;
}

Tensor Pipeline::infer(const MicroBatch& batch, const std::function<Tensor(const Tensor& x)>& last,
                       const Shape& shape) {
  SIXFOLD_CHECK(!batch.training, "a result comes from an evaluation batch");
  PipelineShape pipeline;
  pipeline.num_stages = num_stages_;
  pipeline.virtual_stages = virtual_stages();
  const PipelineSchedule schedule = forward_schedule(pipeline);
  Tensor result = Tensor::empty(shape, parts_.context.dtype, parts_.context.memory, Category::Activations);
  execute({schedule[static_cast<size_t>(stage_)], {&batch, 1}, nullptr, last, [&](const Tensor& y) {
             kernels::copy(parts_.context, y, result);
           }});
  if (num_stages_ > 1) {
    parts_.group->broadcast(result, num_stages_ - 1, call_options(parts_.context, "pp.result")).wait();
  }
  return result;
}

PipelineRun Pipeline::execute(Job job) {
  const auto start = Clock::now();
  PipelineRun run;
  job_ = std::move(job);
  start_lanes();
  for (size_t i = 0; i < job_.actions.size(); ++i) {
    const Action& action = job_.actions[i];
    const Action* next = i + 1 < job_.actions.size() ? &job_.actions[i + 1] : nullptr;
    const auto action_start = Clock::now();
    switch (action.kind) {
      case Kind::Forward:
        forward(action);
        break;
      case Kind::Backward:
        i += backward(action, next) ? 1 : 0;
        break;
      case Kind::RecvActivation:
        activations_[key_of(action)] = receive(action);
        break;
      case Kind::RecvGradient:
        gradients_[key_of(action)] = receive(action);
        break;
      case Kind::SendActivation:
        send(action, take(activations_, action));
        break;
      case Kind::SendGradient:
        send(action, take(gradients_, action));
        break;
    }
    if (is_compute(action)) run.compute_seconds += seconds_since(action_start);
  }
  for (auto& [key, sent] : sent_) sent.work.wait();
  for (Sent& sent : sent_shapes_) sent.work.wait();
  sent_.clear();
  sent_shapes_.clear();
  lanes_.clear();
  run.seconds = seconds_since(start);
  return run;
}

// ---- Computations --------------------------------------------------------------------------------------------------

/// What is recorded from here to the end of the scope: the action, or its part in one unit of the chunk.
comm::SpanScope Pipeline::span(const Action& action, std::optional<size_t> unit) {
  const auto kind = action.kind == Kind::Forward ? comm::ComputeSpan::Kind::Forward : comm::ComputeSpan::Kind::Backward;
  const bool named = parts_.log != nullptr && unit.has_value();
  const int32_t number = named ? log_units_[static_cast<size_t>(action.chunk)][*unit] : -1;
  return {parts_.log, kind, number, action.micro_batch};
}

void Pipeline::forward(const Action& action) {
  const comm::SpanScope whole = span(action);
  const UnitList& units = parts_.chunks[static_cast<size_t>(action.chunk)];
  const MicroBatch& batch = batch_of(action);
  std::vector<Saved> saved(units.size());
  Tensor x = is_first_part(action.chunk) ? Tensor() : take(activations_, action);
  for (size_t u = 0; u < units.size(); ++u) {
    const bool replaced = job_.last != nullptr && is_last_part(action.chunk) && u + 1 == units.size();
    parts_.strategy.before_forward(*units[u], action.micro_batch);
    {
      const comm::SpanScope part = span(action, u);
      x = replaced ? job_.last(x) : units[u]->forward(parts_.context, x, batch, saved[u]);
    }
    parts_.strategy.after_forward(*units[u], action.micro_batch);
    parts_.poll();
  }
  if (batch.training) saved_[key_of(action)] = std::move(saved);
  if (is_last_part(action.chunk)) {
    job_.on_result(x);
  } else {
    activations_[key_of(action)] = x;
  }
}

/// `next` is the action that follows. Returns whether that was the send of the input's gradient, which then is on its
/// way: it starts before the weights' gradients of the chunk's first unit.
bool Pipeline::backward(const Action& action, const Action* next) {
  const comm::SpanScope whole = span(action);
  const UnitList& units = parts_.chunks[static_cast<size_t>(action.chunk)];
  const MicroBatch& batch = batch_of(action);
  const int m = action.micro_batch;
  std::vector<Saved> saved = take(saved_, action);
  const auto ready = [&](Parameter& parameter) {
    parts_.strategy.gradient_ready(parameter, m);
    parts_.poll();
  };
  Tensor dy;
  if (is_last_part(action.chunk)) {
    dy = job_.loss_scale();
  } else {
    dy = take(gradients_, action);
  }
  bool sends = false;
  for (size_t u = units.size(); u-- > 0;) {
    Unit& unit = *units[u];
    parts_.strategy.before_backward(unit, m);
    {
      const comm::SpanScope part = span(action, u);
      dy = unit.backward_input(parts_.context, dy, batch, saved[u]);
      if (u == 0 && next != nullptr && next->kind == Kind::SendGradient && key_of(*next) == key_of(action)) {
        send(*next, dy);
        sends = true;
      }
      parts_.poll();
      unit.backward_weights(parts_.context, batch, saved[u], ready);
    }
    parts_.strategy.after_backward(unit, m);
    parts_.poll();
  }
  if (!sends && !is_first_part(action.chunk)) gradients_[key_of(action)] = dy;
  return sends;
}

// ---- Messages ------------------------------------------------------------------------------------------------------

const MicroBatch& Pipeline::batch_of(const Action& action) const {
  return job_.batches[static_cast<size_t>(action.micro_batch)];
}

int64_t Pipeline::num_tokens(const Action& action) const {
  return batch_of(action).tokens.numel();
}

void Pipeline::start_lanes() {
  for (const Action& action : job_.actions) {
    if (is_receive(action)) lanes_[{action.peer, action.kind}].actions.push_back(&action);
  }
  for (auto& [key, lane] : lanes_) post(lane);
}

bool Pipeline::knows_shape(const Action& action) const {
  return (action.kind == Kind::RecvActivation ? inputs_ : outputs_).count(shape_key(action)) > 0;
}

/// Posts the lane's next receive, if there is one and its shape is known already.
void Pipeline::post(Lane& lane) {
  if (lane.posted || lane.next == lane.actions.size()) return;
  const Action& action = *lane.actions[lane.next];
  if (!knows_shape(action)) return;
  const Announced& announced = (action.kind == Kind::RecvActivation ? inputs_ : outputs_).at(shape_key(action));
  Shape shape = announced.shape;
  const int64_t first = shape[0] * num_tokens(action);
  SIXFOLD_CHECK_EQ(first % announced.tokens, 0, to_string(action) + ": rows in proportion to tokens");
  shape[0] = first / announced.tokens;
  lane.tensor = Tensor::empty(shape, parts_.context.dtype, parts_.context.memory, Category::Activations);
  lane.work =
      parts_.group->recv(lane.tensor, action.peer, options_of(parts_.context, action.kind, batch_of(action).training));
  lane.posted = true;
}

Tensor Pipeline::receive(const Action& action) {
  Lane& lane = lanes_.at({action.peer, action.kind});
  SIXFOLD_CHECK(&action == lane.actions[lane.next], to_string(action) + ": receives of a lane run in their order");
  if (!knows_shape(action)) receive_shape(action);
  post(lane);
  lane.work.wait();
  const Tensor tensor = std::move(lane.tensor);
  lane.posted = false;
  ++lane.next;
  post(lane);
  return tensor;
}

void Pipeline::receive_shape(const Action& action) {
  SIXFOLD_CHECK(action.kind == Kind::RecvActivation, to_string(action) + ": before its activation was sent");
  const Tensor header = Tensor::empty({kHeaderLength}, DType::I64, parts_.context.memory, Category::Other);
  parts_.group->recv(header, action.peer, header_options(parts_.context)).wait();
  const Tensor on_host = kernels::on_host(parts_.context, header);
  const int64_t* values = on_host.data<int64_t>();
  inputs_[shape_key(action)] = {Shape(values + 2, values + 2 + values[1]), values[0]};
}

void Pipeline::send_shape(const Action& action, const Tensor& tensor) {
  const Shape& shape = tensor.shape();
  SIXFOLD_CHECK_LE(size_t{1}, shape.size(), to_string(action) + ": dims");
  SIXFOLD_CHECK_LE(shape.size(), kMaxDims, to_string(action) + ": dims");
  std::array<int64_t, kHeaderLength> values{num_tokens(action), static_cast<int64_t>(shape.size())};
  std::copy(shape.begin(), shape.end(), values.begin() + 2);
  const Tensor header = Tensor::empty({kHeaderLength}, DType::I64, parts_.context.memory, Category::Other);
  kernels::from_host(parts_.context, Tensor::view(values.data(), {kHeaderLength}, DType::I64), header);
  sent_shapes_.push_back({header, parts_.group->send(header, action.peer, header_options(parts_.context))});
  outputs_[shape_key(action)] = {shape, num_tokens(action)};
}

void Pipeline::send(const Action& action, const Tensor& tensor) {
  if (action.kind == Kind::SendActivation && outputs_.count(shape_key(action)) == 0) send_shape(action, tensor);
  Sent& sent = sent_[{action.peer, action.kind}];
  sent.work.wait();
  sent = {tensor,
          parts_.group->send(tensor, action.peer, options_of(parts_.context, action.kind, batch_of(action).training))};
}

}  // namespace sixfold::parallel
