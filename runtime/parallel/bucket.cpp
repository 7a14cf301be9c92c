#include "runtime/parallel/bucket.h"

#include <set>

namespace sixfold::parallel {

namespace {

std::vector<int64_t> counts_of(const std::vector<Parameter*>& parameters) {
  std::vector<int64_t> counts;
  for (const Parameter* parameter : parameters) counts.push_back(numel(parameter->local_shape()));
  return counts;
}

/// Units that lend or borrow a parameter.
std::set<const Unit*> root_units(const UnitList& units) {
  std::set<const Parameter*> shared;
  std::set<const Unit*> root;
  for (Unit* unit : units) {
    for (const Parameter* parameter : unit->borrowed_parameters()) {
      shared.insert(parameter);
      root.insert(unit);
    }
  }
  for (Unit* unit : units) {
    for (const Parameter* parameter : unit->parameters()) {
      if (shared.count(parameter)) root.insert(unit);
    }
  }
  return root;
}

}  // namespace

std::vector<Parameter*> parameters_of(const UnitList& units) {
  std::vector<Parameter*> all;
  std::set<std::string> names;
  for (Unit* unit : units) {
    for (Parameter* parameter : unit->parameters()) {
      SIXFOLD_CHECK(names.insert(parameter->name).second, "two parameters are called " + parameter->name);
      all.push_back(parameter);
    }
  }
  return all;
}

FlatLayout layout_by_size(const UnitList& units, int num_shards, int64_t bucket_bytes) {
  SIXFOLD_CHECK_LE(0, bucket_bytes, "bytes of a bucket");
  constexpr auto kElementBytes = static_cast<int64_t>(sizeof(float));
  const int64_t bucket_count = (bucket_bytes + kElementBytes - 1) / kElementBytes;
  return make_flat_layout(counts_of(parameters_of(units)), num_shards, bucket_count);
}

FlatLayout layout_by_unit(const UnitList& units, int num_shards) {
  const std::set<const Unit*> root = root_units(units);
  std::vector<size_t> bucket_of_unit(units.size());
  size_t num_buckets = 0;
  for (size_t u = units.size(); u-- > 0;) {
    if (!root.count(units[u]) && !units[u]->parameters().empty()) bucket_of_unit[u] = num_buckets++;
  }
  std::vector<size_t> bucket_of;
  for (size_t u = 0; u < units.size(); ++u) {
    const size_t bucket = root.count(units[u]) ? num_buckets : bucket_of_unit[u];
    bucket_of.insert(bucket_of.end(), units[u]->parameters().size(), bucket);
  }
  return make_flat_layout(counts_of(parameters_of(units)), num_shards, bucket_of);
}

std::optional<size_t> root_bucket(const UnitList& units, const FlatLayout& layout) {
  return root_units(units).empty() ? std::nullopt : std::optional(layout.buckets.size() - 1);
}

UnitBuckets buckets_of_units(const UnitList& units, const FlatLayout& layout, BucketsFor what) {
  std::unordered_map<const Parameter*, size_t> bucket_of;
  const std::vector<Parameter*> parameters = parameters_of(units);
  for (size_t i = 0; i < parameters.size(); ++i) bucket_of[parameters[i]] = layout.places[i].bucket;
  UnitBuckets result;
  for (Unit* unit : units) {
    std::set<size_t> buckets;
    for (const auto& list : {unit->parameters(), unit->borrowed_parameters()}) {
      for (const Parameter* parameter : list) {
        if (what == BucketsFor::Values || !parameter->frozen) buckets.insert(bucket_of.at(parameter));
      }
    }
    result[unit] = {buckets.begin(), buckets.end()};
  }
  return result;
}

std::vector<Tensor> make_buckets(const FlatLayout& layout, const kernels::Place& place, DType dtype,
                                 Category category) {
  std::vector<Tensor> buckets;
  for (const BucketLayout& bucket : layout.buckets) {
    buckets.push_back(kernels::zeros(place, {bucket.padded_count}, dtype, category));
  }
  return buckets;
}

void view_bucket(const std::vector<Parameter*>& parameters, const BucketLayout& bucket, const Tensor& flat,
                 Tensor Parameter::*member) {
  int64_t offset = 0;
  for (const size_t i : bucket.parameters) {
    const Shape shape = parameters[i]->local_shape();
    parameters[i]->*member = flat.defined() ? flat.slice(offset, shape) : Tensor();
    offset += numel(shape);
  }
}

BucketQueue::BucketQueue(const std::vector<Parameter*>& parameters, const FlatLayout& layout)
    : parameters_(parameters), num_trainable_(layout.buckets.size()), ready_(parameters.size()) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    index_[parameters[i]] = i;
    bucket_of_.push_back(layout.places[i].bucket);
    if (!parameters[i]->frozen) ++num_trainable_[bucket_of_.back()];
  }
  reset();
}

void BucketQueue::reset() {
  ready_.assign(parameters_.size(), false);
  num_missing_ = num_trainable_;
  next_ = 0;
}

void BucketQueue::mark_ready(const Parameter& parameter) {
  const auto found = index_.find(&parameter);
  SIXFOLD_CHECK(found != index_.end(), "no unit of this strategy has parameter " + parameter.name);
  SIXFOLD_CHECK(!parameter.frozen, parameter.name + " is frozen and has no gradient");
  SIXFOLD_CHECK(!ready_[found->second], "gradient of " + parameter.name + " was ready before in this micro-batch");
  ready_[found->second] = true;
  --num_missing_[bucket_of_[found->second]];
}

void BucketQueue::mark_rest_ready() {
  num_missing_.assign(num_missing_.size(), 0);
}

std::optional<size_t> BucketQueue::take() {
  while (next_ < num_trainable_.size() && num_trainable_[next_] == 0) ++next_;
  if (next_ == num_missing_.size() || num_missing_[next_] > 0) return std::nullopt;
  return next_++;
}

}  // namespace sixfold::parallel
