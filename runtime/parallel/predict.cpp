#include "runtime/parallel/predict.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "runtime/parallel/bucket.h"

namespace sixfold::parallel {

namespace {

constexpr int64_t kF32 = sizeof(float);

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
  int64_t padded() const {
    int64_t sum = 0;
    for (const BucketLayout& bucket : layout.buckets) sum += bucket.padded_count;
    return sum;
  }
};

/// Elements of the largest set of gradient buffers that exist at a time (sharded_gradients.h): the buckets of the unit
/// at work and of units whose buckets are not complete, and those under way.
int64_t peak_gradient_buffers(const UnitList& units, const Sizes& sizes, const StrategyShape& shape) {
  const StrategyOptions& options = shape.options;
  const UnitBuckets buckets_of = buckets_of_units(units, sizes.layout, BucketsFor::Gradients);
  const size_t max_travelling = options.overlap ? static_cast<size_t>(options.max_travelling) : 0;
  const bool in_place = options.grad_dtype == DType::F32;
  BucketQueue queue(sizes.parameters, sizes.layout);
  std::vector<int64_t> attached(sizes.layout.buckets.size());
  std::deque<int64_t> travelling;
  int64_t peak = 0;
  // Each micro-batch meets what is under way of those before it; after as many as can be, all are alike.
  const int num_micro_batches = std::min(shape.num_micro_batches, options.max_travelling + 1);
  for (int micro_batch = 0; micro_batch < num_micro_batches; ++micro_batch) {
    queue.reset();
    for (size_t u = units.size(); u-- > 0;) {
      for (size_t b : buckets_of.at(units[u])) attached[b] = sizes.layout.buckets[b].padded_count;
      peak = std::max(peak, std::accumulate(attached.begin(), attached.end(), int64_t{0}) +
                                std::accumulate(travelling.begin(), travelling.end(), int64_t{0}));
      for (const Parameter* parameter : units[u]->parameters()) {
        if (!parameter->frozen) queue.mark_ready(*parameter);
      }
      while (const std::optional<size_t> b = queue.take()) {
        while (!travelling.empty() && travelling.size() >= max_travelling) travelling.pop_front();
        travelling.push_back(in_place ? attached[*b] : 0);
        attached[*b] = 0;
        if (max_travelling == 0) travelling.pop_front();
      }
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
  const double grad_bytes = static_cast<double>(dtype_bytes(options.grad_dtype));
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
      add("zero1.params", trained * share, kF32);
      break;
    case 2:
      add("zero2.grads", trained * (share * m), grad_bytes);
      add("zero2.params", trained * share, kF32);
      break;
    default: {
      const Elements root = sizes.root ? sizes.bucket(*sizes.root) : Elements{};
      add("zero3.grads", trained * (share * m), grad_bytes);
      add("zero3.gather", (sizes.outside_root() * (2 * m) + root) * share, kF32);
    }
  }
  if (options.hsdp) {
    const double nodes = shape.num_nodes;
    add("hsdp.grads", trained * (2 * (nodes - 1) / nodes / n), grad_bytes);
  }
  return traffic;
}

MemoryPrediction predicted_memory(const UnitList& units, const StrategyShape& shape, int moments_per_element,
                                  int rank) {
  const StrategyOptions& options = shape.options;
  const Sizes sizes(units, shape);
  const int64_t whole = sizes.padded(), shard = whole / sizes.num_shards;
  int64_t parameters = whole, gradients = whole, updated = 0;
  if (options.zero == 0 && options.deterministic) gradients += whole;
  if (options.zero == 1 && options.deterministic) gradients += shard;
  if (options.zero >= 2) gradients = shard + peak_gradient_buffers(units, sizes, shape);
  if (options.zero == 3) {
    const int64_t root = sizes.root ? sizes.layout.buckets[*sizes.root].padded_count : 0;
    parameters = shard + root + peak_gathered(sizes, options);
  }
  for (size_t i = 0; i < sizes.parameters.size(); ++i) {
    if (sizes.parameters[i]->frozen) continue;
    updated +=
        options.zero == 0 ? sizes.layout.places[i].count : part_of(sizes.layout, i, rank % sizes.num_shards).count();
  }
  return {parameters * kF32, gradients * kF32, updated * moments_per_element * kF32};
}

}  // namespace sixfold::parallel
