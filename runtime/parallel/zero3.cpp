#include "runtime/parallel/zero3.h"

#include <algorithm>

#include "runtime/parallel/call_options.h"

namespace sixfold::parallel {

Zero3::Zero3(const UnitList& units, const kernels::Place& place, std::unique_ptr<ShardGroups> groups,
             const StrategyOptions& options)
    : BucketedStrategy(units, layout_by_unit(units, groups->shards().size()), place, &groups->shards(), options,
                       /*early=*/true),
      units_(units),
      root_(root_bucket(units, layout_)),
      groups_(std::move(groups)),
      gather_group_(groups_->shards().split(0, groups_->shards().rank())),
      values_of_unit_(buckets_of_units(units, layout_, BucketsFor::Values)),
      gradients_of_unit_(buckets_of_units(units, layout_, BucketsFor::Gradients)),
      gathered_(layout_.buckets.size()),
      grads_(parameters_, layout_, *groups_, context_, options, "zero3.grads") {
  for (size_t b = 0; b < layout_.buckets.size(); ++b) {
    shards_.push_back(
        kernels::zeros(place, {layout_.buckets[b].piece_count}, options.param_dtype, Category::Parameters));
    add_segments(b, held(b), shards_[b], grads_.shard(b));
  }
}

void Zero3::load_values(const std::function<void(Parameter&)>& fill) {
  comm::Communicator& group = groups_->all();
  for (size_t b = 0; b < layout_.buckets.size(); ++b) {
    const BucketLayout& bucket = layout_.buckets[b];
    const Tensor whole = kernels::zeros(context_, {bucket.padded_count}, options_.param_dtype, Category::Parameters);
    if (group.rank() == 0) {
      view_bucket(parameters_, bucket, whole, &Parameter::value);
      for (size_t i : bucket.parameters) fill(*parameters_[i]);
      view_bucket(parameters_, bucket, {}, &Parameter::value);
    }
    group.broadcast(whole, 0, call_options(context_, "dp.params")).wait();
    kernels::copy(context_, whole.slice(groups_->shards().rank() * bucket.piece_count, {bucket.piece_count}),
                  shards_[b]);
  }
}

// ---- Gathering -----------------------------------------------------------------------------------------------------

void Zero3::before_forward(Unit& unit, int) {
  open(unit, Direction::Forward);
}

void Zero3::after_forward(Unit& unit, int) {
  close(unit);
  if (!in_step_ && root_ && &unit == units_.back()) free_values(*root_);
}

void Zero3::before_backward(Unit& unit, int micro_batch) {
  BucketedStrategy::before_backward(unit, micro_batch);
  open(unit, Direction::Backward);
}

void Zero3::after_backward(Unit& unit, int) {
  close(unit);
}

/// Starts what the unit and the next ones need, then waits for the unit's own.
void Zero3::open(const Unit& unit, Direction direction) {
  const std::vector<size_t>& buckets = values_of_unit_.at(&unit);
  for (size_t b : buckets) start_gather(b);

  int num_ahead = options_.overlap ? options_.prefetch : 0;
  const auto place = std::find(units_.begin(), units_.end(), &unit) - units_.begin();
  const auto num_units = static_cast<std::ptrdiff_t>(units_.size());
  const int step = static_cast<int>(direction);
  for (std::ptrdiff_t next = place + step; num_ahead > 0 && next >= 0 && next < num_units; next += step) {
    const std::vector<size_t>& ahead = values_of_unit_.at(units_[static_cast<size_t>(next)]);
    if (ahead.empty() || ahead[0] == root_) continue;
    start_gather(ahead[0]);  // a unit outside of the root has one bucket
    --num_ahead;
  }

  for (size_t b : buckets) {
    Gathered& gathered = gathered_[b];
    gathered.work.wait();
    view_bucket(parameters_, layout_.buckets[b], gathered.values, &Parameter::value);
    ++gathered.num_users;
  }
}

void Zero3::close(const Unit& unit) {
  for (size_t b : values_of_unit_.at(&unit)) {
    if (--gathered_[b].num_users == 0 && b != root_) free_values(b);
  }
}

void Zero3::start_gather(size_t bucket) {
  Gathered& gathered = gathered_[bucket];
  if (gathered.values.defined()) return;
  gathered.values = Tensor::empty({layout_.buckets[bucket].padded_count}, options_.param_dtype, context_.memory,
                                  Category::Parameters);
  gathered.work = gather_group_.all_gather(shards_[bucket], gathered.values,
                                           call_options(context_, in_step_ ? "zero3.gather" : "zero3.gather.eval"));
}

void Zero3::free_values(size_t bucket) {
  view_bucket(parameters_, layout_.buckets[bucket], {}, &Parameter::value);
  gathered_[bucket].values = {};
}

// ---- A step --------------------------------------------------------------------------------------------------------

void Zero3::clear_gradients() {
  grads_.clear();
  in_step_ = true;
}

void Zero3::finish() {
  grads_.finish();
  if (root_) free_values(*root_);
  in_step_ = false;
}

void Zero3::gather_value(const Parameter& parameter, const Tensor& out) {
  const size_t index = index_of(parameter);
  gather_held(index, shards_[layout_.places[index].bucket], out);
}

void Zero3::gather_gradient(const Parameter& parameter, const Tensor& out) {
  const size_t index = index_of(parameter);
  gather_held(index, grads_.shard(layout_.places[index].bucket), out);
}

}  // namespace sixfold::parallel
