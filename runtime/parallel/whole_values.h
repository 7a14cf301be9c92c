// WholeValues: parameters that every rank holds whole, as DDP, ZeRO-1 and ZeRO-2 do.
#pragma once

#include <functional>

#include "runtime/comm/communicator.h"
#include "runtime/parallel/bucket.h"

namespace sixfold::parallel {

class WholeValues {
 public:
  /// Places the values of all parameters of `units`, in Category::Parameters, 0 at first.
  WholeValues(const UnitList& units, const FlatLayout& layout, const kernels::Place& place, DType dtype);
  /// Waits for what is under way, unless the rank is failing.
  ~WholeValues();

  /// As Strategy::load_values: one Broadcast a bucket from rank 0 of `group` ("dp.params").
  void load(comm::Communicator& group, const std::function<void(Parameter&)>& fill);

  /// All of the bucket, [padded_count].
  const Tensor& bucket(size_t bucket) const { return values_[bucket]; }
  /// Shard `shard` of it with its padding, [piece_count].
  Tensor piece(size_t bucket, int shard) const;

  /// `work` brings new values for a part of the bucket.
  void expect(size_t bucket, comm::Work work) { arriving_[bucket].push_back(std::move(work)); }
  /// Until all of the unit's values, or all values, have come.
  void wait_for(const Unit& unit);
  void wait();

 private:
  void wait_for_bucket(size_t bucket);

  kernels::Context context_;
  std::vector<Parameter*> parameters_;
  const FlatLayout layout_;
  UnitBuckets buckets_of_unit_;
  std::vector<Tensor> values_;                     // by bucket
  std::vector<std::vector<comm::Work>> arriving_;  // by bucket
};

}  // namespace sixfold::parallel
