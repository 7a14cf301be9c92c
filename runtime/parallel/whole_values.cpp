#include "runtime/parallel/whole_values.h"

#include <exception>

#include "runtime/parallel/call_options.h"

namespace sixfold::parallel {

WholeValues::WholeValues(const UnitList& units, const FlatLayout& layout, const kernels::Place& place, DType dtype)
    : context_(kernels::context_of(place)),
      parameters_(parameters_of(units)),
      layout_(layout),
      buckets_of_unit_(buckets_of_units(units, layout, BucketsFor::Values)),
      values_(make_buckets(layout, place, dtype, Category::Parameters)),
      arriving_(layout.buckets.size()) {
  for (size_t b = 0; b < values_.size(); ++b) {
    view_bucket(parameters_, layout_.buckets[b], values_[b], &Parameter::value);
  }
}

WholeValues::~WholeValues() {
  if (std::uncaught_exceptions() > 0) return;
  try {
    wait();
  } catch (const CommError&) {
    // The World has failed and says so to whoever waits for something next.
  }
}

void WholeValues::load(comm::Communicator& group, const std::function<void(Parameter&)>& fill) {
  wait();
  if (group.rank() == 0) {
    for (Parameter* parameter : parameters_) fill(*parameter);
  }
  if (group.size() == 1) return;
  for (size_t b = 0; b < values_.size(); ++b)
    expect(b, group.broadcast(values_[b], 0, call_options(context_, "dp.params")));
  wait();
}

Tensor WholeValues::piece(size_t bucket, int shard) const {
  const int64_t count = layout_.buckets[bucket].piece_count;
  return values_[bucket].slice(shard * count, {count});
}

void WholeValues::wait_for(const Unit& unit) {
  for (size_t bucket : buckets_of_unit_.at(&unit)) wait_for_bucket(bucket);
}

void WholeValues::wait() {
  for (size_t bucket = 0; bucket < arriving_.size(); ++bucket) wait_for_bucket(bucket);
}

void WholeValues::wait_for_bucket(size_t bucket) {
  for (comm::Work& work : arriving_[bucket]) work.wait();
  arriving_[bucket].clear();
}

}  // namespace sixfold::parallel
