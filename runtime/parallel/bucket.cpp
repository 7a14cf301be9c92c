#include "runtime/parallel/bucket.h"

#include <set>

namespace sixfold::parallel {

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

std::vector<Bucket> place_parameters(const std::vector<Parameter*>& parameters, const FlatLayout& layout,
                                     Memory& memory) {
  std::vector<Bucket> buckets;
  for (const BucketLayout& bucket : layout.buckets) {
    buckets.push_back({Tensor::zeros({bucket.padded_count}, DType::F32, memory, Category::Parameters),
                       Tensor::zeros({bucket.padded_count}, DType::F32, memory, Category::Gradients),
                       {}});
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const FlatLayout::Place& place = layout.places[i];
    parameters[i]->value = buckets[place.bucket].values.slice(place.offset, parameters[i]->local_shape());
    parameters[i]->grad = buckets[place.bucket].grads.slice(place.offset, parameters[i]->local_shape());
  }
  return buckets;
}

BucketQueue::BucketQueue(const std::vector<Parameter*>& parameters, const FlatLayout& layout)
    : parameters_(parameters), ready_(parameters.size()) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    index_[parameters[i]] = i;
    bucket_of_.push_back(layout.places[i].bucket);
  }
  for (const BucketLayout& bucket : layout.buckets) bucket_size_.push_back(bucket.parameters.size());
  reset();
}

void BucketQueue::reset() {
  ready_.assign(parameters_.size(), false);
  num_missing_ = bucket_size_;
  next_ = 0;
}

void BucketQueue::mark_ready(const Parameter& parameter) {
  const auto found = index_.find(&parameter);
  SIXFOLD_CHECK(found != index_.end(), "no unit of this strategy has parameter " + parameter.name);
  SIXFOLD_CHECK(!ready_[found->second], "gradient of " + parameter.name + " was ready before in this micro-batch");
  ready_[found->second] = true;
  --num_missing_[bucket_of_[found->second]];
}

std::optional<size_t> BucketQueue::take() {
  if (next_ == num_missing_.size() || num_missing_[next_] > 0) return std::nullopt;
  return next_++;
}

void BucketQueue::check_all_ready() const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    SIXFOLD_CHECK(ready_[i], "gradient of " + parameters_[i]->name + " never became ready");
  }
}

}  // namespace sixfold::parallel
