#include "runtime/parallel/predict.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "runtime/parallel/bucket.h"

namespace sixfold::parallel {

namespace {

constexpr int64_t kF32 = sizeof(float);

int64_t bytes_of(DType dtype) {
  return static_cast<int64_t>(dtype_bytes(dtype));
}

/// Elements of buckets, and of what fills them up.
struct Elements {
  double payload = 0, padding = 0;
  Elements operator*(double factor) const { return {payload * factor, padding * factor}; }
  Elements operator+(const Elements& other) const { return {payload + other.payload, padding + other.padding}; }
};

/// How a strategy of this shape lays the units out.
struct Sizes {
  int num_shards;
  std::vector<Parameter*> parameters;
  FlatLayout layout;
  std::optional<size_t> root;

  Sizes(const UnitList& units, const StrategyShape& shape)
      : num_shards(shape.options.hsdp ? shape.num_ranks / shape.num_nodes : shape.num_ranks),
        parameters(parameters_of(units)),
        layout(shape.options.zero == 3 ? layout_by_unit(units, num_shards)
                                       : layout_by_size(units, num_shards, shape.options.bucket_bytes)) {
    if (shape.options.zero == 3) root = root_bucket(units, layout);
  }

  bool is_trained(size_t bucket) const {
    const auto& members = layout.buckets[bucket].parameters;
    return std::any_of(members.begin(), members.end(), [this](size_t i) { return !parameters[i]->frozen; });
  }
  Elements bucket(size_t b) const {
    const BucketLayout& bucket = layout.buckets[b];
    return {static_cast<double>(bucket.count), static_cast<double>(bucket.padded_count - bucket.count)};
  }
  Elements trained() const {
    Elements sum;
    for (size_t b = 0; b < layout.buckets.size(); ++b) {
      if (is_trained(b)) sum = sum + bucket(b);
    }
    return sum;
  }
  Elements outside_root() const {
    Elements sum;
    for (size_t b = 0; b < layout.buckets.size(); ++b) {
      if (b != root) sum = sum + bucket(b);
    }
    return sum;
  }
  /// Elements of a parameter that rank `rank` updates.
  int64_t held(size_t parameter, const StrategyOptions& options, int rank) const {
    return options.zero == 0 ? layout.places[parameter].count : part_of(layout, parameter, rank % num_shards).count();
  }
  int64_t padded() const {
    int64_t sum = 0;
    for (const BucketLayout& bucket : layout.buckets) sum += bucket.padded_count;
    return sum;
  }
};

/// The gradient buffers of one strategy that exist at a time (sharded_gradients.h): the buckets of the unit at work and
/// of units whose buckets are not complete, and those under way.
class GradientBuffers {
 public:
  GradientBuffers(const UnitList& units, const Sizes& sizes, const StrategyOptions& options)
      : sizes_(sizes),
        max_travelling_(options.overlap ? static_cast<size_t>(options.max_travelling) : 0),
        in_place_(options.grad_dtype == DType::F32),
        buckets_of_(buckets_of_units(units, sizes.layout, BucketsFor::Gradients)),
        queue_(sizes.parameters, sizes.layout),
        attached_(sizes.layout.buckets.size()) {}

  void begin_micro_batch() { queue_.reset(); }
  /// A unit begins to add to its gradients.
  void attach(const Unit& unit) {
    for (size_t b : buckets_of_.at(&unit)) attached_[b] = sizes_.layout.buckets[b].padded_count;
  }
  /// It has reported them.
  void complete(Unit& unit) {
    for (const Parameter* parameter : unit.parameters()) {
      if (!parameter->frozen) queue_.mark_ready(*parameter);
    }
    while (const std::optional<size_t> b = queue_.take()) {
      while (!travelling_.empty() && travelling_.size() >= max_travelling_) travelling_.pop_front();
      travelling_.push_back(in_place_ ? attached_[*b] : 0);
      attached_[*b] = 0;
      if (max_travelling_ == 0) travelling_.pop_front();
    }
  }
  int64_t elements() const {
    return std::accumulate(attached_.begin(), attached_.end(),
                           std::accumulate(travelling_.begin(), travelling_.end(), int64_t{0}));
  }

 private:
  const Sizes& sizes_;
  const size_t max_travelling_;
  const bool in_place_;
  UnitBuckets buckets_of_;
  BucketQueue queue_;
  std::vector<int64_t> attached_;  // by bucket
  std::deque<int64_t> travelling_;
};

/// Elements of the largest set of gradient buffers of a strategy alone.
int64_t peak_gradient_buffers(const UnitList& units, const Sizes& sizes, const StrategyShape& shape) {
  GradientBuffers buffers(units, sizes, shape.options);
  int64_t peak = 0;
  // Each micro-batch meets what is under way of those before it; after as many as can be, all are alike.
  const int num_micro_batches = std::min(shape.num_micro_batches, shape.options.max_travelling + 1);
  for (int micro_batch = 0; micro_batch < num_micro_batches; ++micro_batch) {
    buffers.begin_micro_batch();
    for (size_t u = units.size(); u-- > 0;) {
      buffers.attach(*units[u]);
      peak = std::max(peak, buffers.elements());
      buffers.complete(*units[u]);
    }
  }
  return peak;
}

/// Elements of the largest set of units that are whole at a time, besides the root: 1 + prefetch neighbours.
int64_t peak_gathered(const Sizes& sizes, const StrategyOptions& options) {
  std::vector<int64_t> units;
  for (size_t b = 0; b < sizes.layout.buckets.size(); ++b) {
    if (b != sizes.root) units.push_back(sizes.layout.buckets[b].padded_count);
  }
  const size_t width = 1 + static_cast<size_t>(options.overlap ? options.prefetch : 0);
  int64_t peak = 0;
  for (size_t first = 0; first < units.size(); ++first) {
    int64_t sum = 0;
    for (size_t i = first; i < std::min(units.size(), first + width); ++i) sum += units[i];
    peak = std::max(peak, sum);
  }
  return peak;
}

}  // namespace

std::vector<TagTraffic> predicted_traffic(const UnitList& units, const StrategyShape& shape) {
  const StrategyOptions& options = shape.options;
  if (shape.num_ranks == 1) return {};
  const Sizes sizes(units, shape);
  const double n = sizes.num_shards, share = (n - 1) / n, m = shape.num_micro_batches;
  const double once = options.deterministic ? m : 1;  // reductions of a step, where not every micro-batch needs one
  const double grad_bytes = static_cast<double>(bytes_of(options.grad_dtype));
  const double param_bytes = static_cast<double>(bytes_of(options.param_dtype));
  const Elements trained = sizes.trained();
  std::vector<TagTraffic> traffic;
  const auto add = [&](const std::string& tag, const Elements& elements, double bytes) {
    traffic.push_back({tag, elements.payload * bytes, elements.padding * bytes});
  };
  switch (options.zero) {
    case 0:
      add("dp.grads", trained * (2 * share * once), grad_bytes);
      break;
    case 1:
      add("zero1.grads", trained * (share * once), grad_bytes);
      add("zero1.params", trained * share, param_bytes);
      break;
    case 2:
      add("zero2.grads", trained * (share * m), grad_bytes);
      add("zero2.params", trained * share, param_bytes);
      break;
    default: {
      const Elements root = sizes.root ? sizes.bucket(*sizes.root) : Elements{};
      add("zero3.grads", trained * (share * m), grad_bytes);
      add("zero3.gather", (sizes.outside_root() * (2 * m) + root) * share, param_bytes);
    }
  }
  if (options.hsdp) {
    const double nodes = shape.num_nodes;
    add("hsdp.grads", trained * (2 * (nodes - 1) / nodes / n), grad_bytes);
  }
  return traffic;
}

namespace {

/// What a strategy keeps all the time and what comes and goes, in elements.
struct Kept {
  int64_t parameters = 0, gathered = 0;  // gathered: the units that are whole at a time
  int64_t gradients = 0;                 // without the buffers of ZeRO-2 and 3
  int64_t updated = 0;

  Kept(const Sizes& sizes, const StrategyOptions& options, int rank) {
    const int64_t whole = sizes.padded(), shard = whole / sizes.num_shards;
    parameters = gradients = whole;
    if (options.zero == 0 && options.deterministic) gradients += whole;
    if (options.zero == 1 && options.deterministic) gradients += shard;
    if (options.zero >= 2) gradients = shard;
    if (options.zero == 3) {
      const int64_t root = sizes.root ? sizes.layout.buckets[*sizes.root].padded_count : 0;
      parameters = shard + root;
      gathered = peak_gathered(sizes, options);
    }
    for (size_t i = 0; i < sizes.parameters.size(); ++i) {
      if (!sizes.parameters[i]->frozen) updated += sizes.held(i, options, rank);
    }
  }
};

}  // namespace

MemoryPrediction predicted_memory(const UnitList& units, const StrategyShape& shape, int floats_per_element, int rank) {
  const Sizes sizes(units, shape);
  const Kept kept(sizes, shape.options, rank);
  const int64_t buffers = shape.options.zero >= 2 ? peak_gradient_buffers(units, sizes, shape) : 0;
  const int64_t param_bytes = bytes_of(shape.options.param_dtype);
  return {(kept.parameters + kept.gathered) * param_bytes, (kept.gradients + buffers) * kF32,
          kept.updated * floats_per_element * kF32, std::nullopt};
}

// ---- Stages --------------------------------------------------------------------------------------------------------

namespace {

/// What the strategy of a part sees of a step.
StrategyShape shape_of_part(const StageUnits::Part& part, const StrategyShape& shape) {
  StrategyShape of_part = shape;
  if (part.tied) of_part.num_micro_batches = 1;
  return of_part;
}

std::vector<Sizes> sizes_of_parts(const StageUnits& stage, const StrategyShape& shape) {
  std::vector<Sizes> sizes;
  for (const StageUnits::Part& part : stage.parts()) sizes.emplace_back(part.units, shape);
  return sizes;
}

/// Elements of the largest set of gradient buffers of all parts together.
int64_t peak_gradient_buffers(const StageUnits& stage, const std::vector<Sizes>& sizes, const StrategyShape& shape,
                              const PipelineShape& pipeline) {
  std::vector<GradientBuffers> parts;
  for (size_t i = 0; i < sizes.size(); ++i) parts.emplace_back(stage.parts()[i].units, sizes[i], shape.options);
  int64_t peak = 0;
  const PipelineSchedule schedule = pipeline_schedule(pipeline);
  for (const Action& action : schedule[static_cast<size_t>(stage.stage())]) {
    if (action.kind != Action::Kind::Backward) continue;
    const UnitList& units = stage.chunks()[static_cast<size_t>(action.chunk)];
    GradientBuffers& part = parts[static_cast<size_t>(action.chunk)];
    part.begin_micro_batch();
    for (size_t u = units.size(); u-- > 0;) {
      part.attach(stage.placed(*units[u]));
      if (const Unit* tied = stage.placed_tied(*units[u])) parts.back().attach(*tied);
      int64_t elements = 0;
      for (const GradientBuffers& buffers : parts) elements += buffers.elements();
      peak = std::max(peak, elements);
      part.complete(stage.placed(*units[u]));
    }
  }
  return peak;
}

}  // namespace

std::vector<TagTraffic> predicted_traffic(const StageUnits& stage, const StrategyShape& shape) {
  std::vector<TagTraffic> sum;
  for (const StageUnits::Part& part : stage.parts()) {
    for (const TagTraffic& traffic : predicted_traffic(part.units, shape_of_part(part, shape))) {
      const auto same = std::find_if(sum.begin(), sum.end(), [&](auto& other) { return other.tag == traffic.tag; });
      if (same == sum.end()) {
        sum.push_back(traffic);
      } else {
        same->payload_bytes += traffic.payload_bytes;
        same->padding_bytes += traffic.padding_bytes;
      }
    }
  }
  return sum;
}

std::vector<TagTraffic> predicted_pipeline_traffic(const PipelineShape& pipeline, const StageUnits& stage,
                                                   int64_t activation_elements, DType dtype) {
  if (pipeline.num_stages == 1) return {};
  const double bytes = static_cast<double>(activation_elements * bytes_of(dtype) * pipeline.num_micro_batches);
  const bool has_first = stage.stage() == 0, has_last = stage.stage() == pipeline.num_stages - 1;
  int64_t tied = 0;
  for (const Parameter* parameter : stage.tied()) tied += parameter->frozen ? 0 : numel(parameter->local_shape());
  return {{"pp.activation", bytes * (pipeline.virtual_stages - (has_last ? 1 : 0)), 0},
          {"pp.gradient", bytes * (pipeline.virtual_stages - (has_first ? 1 : 0)), 0},
          {"pp.tied", static_cast<double>(tied * kF32), 0}};
}

int64_t partial_elements(const StageUnits& stage, const StrategyShape& shape, int rank) {
  int64_t sum = 0;
  for (const Sizes& sizes : sizes_of_parts(stage, shape)) {
    for (size_t i = 0; i < sizes.parameters.size(); ++i) {
      const Parameter& parameter = *sizes.parameters[i];
      if (parameter.partial && !parameter.frozen) sum += sizes.held(i, shape.options, rank);
    }
  }
  return sum;
}

MemoryPrediction predicted_memory(const StageUnits& stage, const StrategyShape& shape, const PipelineShape& pipeline,
                                  int floats_per_element, int rank) {
  const std::vector<Sizes> parts = sizes_of_parts(stage, shape);
  int64_t parameters = 0, gathered = 0, gradients = 0, updated = 0;
  for (const Sizes& sizes : parts) {
    const Kept kept(sizes, shape.options, rank);
    parameters += kept.parameters;
    gathered = std::max(gathered, kept.gathered);
    gradients += kept.gradients;
    updated += kept.updated;
  }
  if (shape.options.zero >= 2) gradients += peak_gradient_buffers(stage, parts, shape, pipeline);
  const int64_t param_bytes = bytes_of(shape.options.param_dtype);
  return {(parameters + gathered) * param_bytes, gradients * kF32, updated * floats_per_element * kF32, std::nullopt};
}

}  // namespace sixfold::parallel
