// Buckets: the flat buffers that hold parameters and gradients, and the order in which they become ready.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "runtime/parallel/flat_layout.h"
#include "runtime/parallel/unit.h"

namespace sixfold::parallel {

/// All parameters of `units`, in unit order. Throws CheckError when two have the same name.
std::vector<Parameter*> parameters_of(const UnitList& units);

/// Buckets by size, for parameters that all ranks hold whole: closed at `bucket_bytes` (0: one parameter each).
FlatLayout layout_by_size(const UnitList& units, int num_shards, int64_t bucket_bytes);

/// Buckets by use, for parameters that are gathered when a unit needs them: one a unit, last unit first. Units that
/// share a parameter (see Unit::borrowed_parameters) form the *root*, one bucket, which is the last: a model whose
/// ends are tied needs it from its first forward to its last backward.
FlatLayout layout_by_unit(const UnitList& units, int num_shards);
/// The root's bucket in a layout by unit, where there is one.
std::optional<size_t> root_bucket(const UnitList& units, const FlatLayout& layout);

/// The buckets that a unit works on, those of its borrowed parameters included, in ascending order: where values are
/// meant, or only those with a gradient.
enum class BucketsFor : uint8_t { Values, Gradients };
using UnitBuckets = std::unordered_map<const Unit*, std::vector<size_t>>;
UnitBuckets buckets_of_units(const UnitList& units, const FlatLayout& layout, BucketsFor what);

/// One buffer a bucket, f32 [padded_count], all zero.
std::vector<Tensor> make_buckets(const FlatLayout& layout, const kernels::Place& place, DType dtype, Category category);

/// Makes `member` (&Parameter::value or &Parameter::grad) of each parameter of the bucket a view of its place in
/// `flat`, [padded_count]. An undefined `flat` takes the views away.
void view_bucket(const std::vector<Parameter*>& parameters, const BucketLayout& bucket, const Tensor& flat,
                 Tensor Parameter::*member);

/// Hands out the buckets of one micro-batch as they become complete: in bucket order, each once, whatever the order in
/// which a rank's gradients become ready. So all ranks start the same operations in the same order. Frozen parameters
/// are never waited for, and buckets that hold nothing else are never handed out.
class BucketQueue {
 public:
  BucketQueue(const std::vector<Parameter*>& parameters, const FlatLayout& layout);

  /// The next micro-batch: nothing is ready.
  void reset();
  /// Throws CheckError for an unknown or frozen parameter, and for one that was ready before.
  void mark_ready(const Parameter& parameter);
  /// The backward has ended: whatever is not ready will not become so, and counts as ready.
  void mark_rest_ready();
  /// The next bucket, once all its parameters and all buckets before it are ready.
  std::optional<size_t> take();

 private:
  std::vector<Parameter*> parameters_;
  std::unordered_map<const Parameter*, size_t> index_;
  std::vector<size_t> bucket_of_;      // by parameter
  std::vector<size_t> num_trainable_;  // by bucket: parameters that are not frozen
  std::vector<bool> ready_;            // by parameter
  std::vector<size_t> num_missing_;    // by bucket: parameters that are not ready
  size_t next_ = 0;                    // first bucket not taken
};

}  // namespace sixfold::parallel
