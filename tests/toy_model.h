// A toy model for tests of strategies: units whose gradients are numbers that the test chooses, so that every sum is
// known.
#pragma once

#include <cmath>

#include "runtime/core/rng.h"
#include "runtime/parallel/bucket.h"
#include "runtime/parallel/strategy.h"
#include "tests/harness.h"

namespace sixfold::parallel {

/// What is added to element `element` of a parameter's gradient in the backward of a micro-batch.
using Gradient = std::function<float(const Parameter& parameter, int64_t element, int micro_batch)>;

/// A unit without arithmetic. Its backward adds given numbers, then says "ready", last parameter first or the other
/// way.
class ToyUnit final : public Unit {
 public:
  ToyUnit(std::string name, std::vector<std::pair<std::string, Shape>> shapes, bool forwards, const Gradient* gradient)
      : name_(std::move(name)), forwards_(forwards), gradient_(gradient) {
    for (auto& [parameter_name, shape] : shapes) {
      Parameter parameter;
      parameter.name = name_ + "." + parameter_name;
      parameter.decay = shape.size() > 1;
      parameter.full_shape = std::move(shape);
      parameters_.push_back(std::move(parameter));
    }
  }

  const std::string& name() const override { return name_; }
  std::vector<Parameter*> parameters() override {
    std::vector<Parameter*> pointers;
    for (Parameter& parameter : parameters_) pointers.push_back(&parameter);
    return pointers;
  }
  std::vector<Parameter*> borrowed_parameters() override { return borrowed_; }
  /// Adds to the gradient of another unit's parameter as well.
  void borrow(Parameter& parameter) { borrowed_ = {&parameter}; }
  Tensor forward(kernels::Context&, const Tensor& x, const MicroBatch&, Saved&) override { return x; }
  Tensor backward_input(kernels::Context&, const Tensor& dy, const MicroBatch&, Saved&) override { return dy; }
  void backward_weights(kernels::Context&, const MicroBatch& batch, Saved&, const GradientReady& ready) override {
    const auto micro_batch = static_cast<int>(batch.sample_index.at(0));
    for (size_t k = 0; k < parameters_.size(); ++k) {
      Parameter& parameter = parameters_[forwards_ ? k : parameters_.size() - 1 - k];
      if (parameter.frozen) continue;
      add(parameter, micro_batch);
      ready(parameter);
    }
    for (Parameter* parameter : borrowed_) add(*parameter, micro_batch);
  }

 private:
  void add(const Parameter& parameter, int micro_batch) const {
    float* grad = parameter.grad.data<float>();
    for (int64_t i = 0; i < parameter.grad.numel(); ++i) grad[i] += (*gradient_)(parameter, i, micro_batch);
  }

  std::string name_;
  bool forwards_;
  const Gradient* gradient_;
  std::vector<Parameter> parameters_;
  std::vector<Parameter*> borrowed_;
};

/// The units of one rank. Ranks differ in the order in which a unit's gradients become ready, as they may. tied: the
/// head borrows embed.wte.
struct ToyModel {
  explicit ToyModel(int rank, bool tied = false) : memory(std::make_unique<Memory>()) {
    const bool forwards = rank % 2 == 1;
    owned.push_back(
        std::make_unique<ToyUnit>("embed", Shapes{{"wte", {37, 16}}, {"wpe", {5, 16}}}, forwards, &gradient));
    owned.push_back(
        std::make_unique<ToyUnit>("h0", Shapes{{"w", {16, 33}}, {"empty", {0, 8}}, {"b", {33}}}, forwards, &gradient));
    owned.push_back(std::make_unique<ToyUnit>("h1", Shapes{{"w", {16, 7}}, {"b", {7}}}, forwards, &gradient));
    owned.push_back(std::make_unique<ToyUnit>("head", Shapes{{"gain", {1}}}, forwards, &gradient));
    for (auto& unit : owned) units.push_back(unit.get());
    if (tied) owned.back()->borrow(*units[0]->parameters()[0]);
  }
  using Shapes = std::vector<std::pair<std::string, Shape>>;

  std::unique_ptr<Memory> memory;
  Gradient gradient;
  std::vector<std::unique_ptr<ToyUnit>> owned;
  UnitList units;
};
inline constexpr int64_t kToyParameters[] = {592, 80, 528, 0, 33, 112, 7, 1};  // elements, in unit order
inline constexpr int64_t kToyElements = 1353;

/// The calls of a trainer in one micro-batch; `between` runs after each unit's backward.
inline void run_backward(
    ToyModel& model, Strategy& strategy, int micro_batch, const std::function<void()>& between = [] {}) {
  kernels::Context context{*model.memory};
  MicroBatch batch;
  batch.sample_index = {micro_batch};
  Saved saved;
  for (Unit* unit : model.units) {
    strategy.before_forward(*unit, micro_batch);
    strategy.after_forward(*unit, micro_batch);
  }
  for (size_t i = model.units.size(); i-- > 0;) {
    Unit& unit = *model.units[i];
    strategy.before_backward(unit, micro_batch);
    unit.backward_weights(context, batch, saved, [&](Parameter& p) { strategy.gradient_ready(p, micro_batch); });
    strategy.after_backward(unit, micro_batch);
    between();
  }
}

inline void run_step(
    ToyModel& model, Strategy& strategy, int num_micro_batches, const std::function<void()>& between = [] {}) {
  strategy.begin_step(num_micro_batches);
  for (int m = 0; m < num_micro_batches; ++m) run_backward(model, strategy, m, between);
  strategy.finish_gradients();
  strategy.after_step();
}

/// What `gather` writes for each parameter, in the order of the units, whatever buckets and shards they are in.
inline std::vector<float> gathered(ToyModel& model,
                                   const std::function<void(const Parameter&, const Tensor&)>& gather) {
  std::vector<float> all;
  for (const Parameter* parameter : parameters_of(model.units)) {
    const Tensor whole = Tensor::empty(parameter->local_shape(), DType::F32, *model.memory, Category::Other);
    gather(*parameter, whole);
    all.insert(all.end(), whole.data<float>(), whole.data<float>() + whole.numel());
  }
  return all;
}
inline std::vector<float> gathered_gradients(ToyModel& model, Strategy& strategy) {
  return gathered(model, [&](const Parameter& p, const Tensor& out) { strategy.gather_gradient(p, out); });
}
inline std::vector<float> gathered_values(ToyModel& model, Strategy& strategy) {
  return gathered(model, [&](const Parameter& p, const Tensor& out) { strategy.gather_value(p, out); });
}

/// The row of a tag, or one without calls.
inline comm::CommRow row_of(comm::World& world, const std::string& tag) {
  comm::CommRow found;
  for (const comm::CommRow& row : world.comm_table().rows()) {
    if (row.tag != tag) continue;
    EXPECT_EQ(found.calls, 0) << "two rows for " << tag;
    found = row;
  }
  return found;
}

/// Calls and bytes of a tag, by whatever algorithms and in whatever groups.
inline comm::CommRow total_of(comm::World& world, const std::string& tag) {
  comm::CommRow total;
  for (const comm::CommRow& row : world.comm_table().rows()) {
    if (row.tag != tag) continue;
    total.calls += row.calls;
    total.sent_bytes += row.sent_bytes;
  }
  return total;
}

inline comm::WorldOptions small_links(bool deterministic) {
  comm::WorldOptions options;
  options.deterministic = deterministic;
  options.links = {2, 512};
  return options;
}

/// A reproducible float of random sign, of a magnitude between 2^-12 and 2^12: sums of such round at every step.
inline float wild(int rank, int micro_batch, const Parameter& parameter, int64_t element) {
  const uint64_t word = philox_hash(static_cast<uint64_t>(rank * 100 + micro_batch),
                                    std::hash<std::string>{}(parameter.name) + static_cast<uint64_t>(element));
  const float mantissa = 1 + uniform_float(static_cast<uint32_t>(word >> 32));
  return std::ldexp((word & 1) != 0 ? mantissa : -mantissa, static_cast<int>((word >> 1) % 24) - 12);
}

/// One parameter a bucket, one element, 1 KiB, exactly the model, five times the model.
inline constexpr int64_t kBucketBytes[] = {0, 4, 1024, kToyElements * 4, 5 * kToyElements * 4};

/// DDP and the three stages; where the ranks are on two nodes, the hybrids as well.
inline std::vector<StrategyOptions> every_strategy(bool nodes, const StrategyOptions& base = {}) {
  std::vector<StrategyOptions> all;
  for (int zero = 0; zero <= 3; ++zero) {
    for (bool hsdp : {false, true}) {
      if (hsdp && (zero < 2 || !nodes)) continue;
      StrategyOptions options = base;
      options.zero = zero;
      options.hsdp = hsdp;
      all.push_back(options);
    }
  }
  return all;
}

inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const CheckError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace sixfold::parallel
