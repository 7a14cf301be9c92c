// Buckets: the flat buffers that hold parameters and gradients, and the order in which they become ready.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/parallel/flat_layout.h"
#include "runtime/parallel/unit.h"

namespace sixfold::parallel {

/// The buffers of one bucket, f32 [padded_count], all zero at first.
struct Bucket {
  Tensor values;
  Tensor grads;
  comm::Work reduction;  // of `grads`; done where none is under way
};

/// All parameters of `units`, in unit order. Throws CheckError when two have the same name.
std::vector<Parameter*> parameters_of(const UnitList& units);

/// Allocates the buckets of `layout` and makes each parameter's value and grad a view of its place in them. What the
/// parameters held before is gone. `parameters` are those that the layout was made of, in the same order.
std::vector<Bucket> place_parameters(const std::vector<Parameter*>& parameters, const FlatLayout& layout,
                                     Memory& memory);

/// Hands out the buckets of one micro-batch as they become complete: in bucket order, each once, whatever the order in
/// which a rank's gradients become ready. So all ranks start the same operations in the same order.
class BucketQueue {
 public:
  BucketQueue(const std::vector<Parameter*>& parameters, const FlatLayout& layout);

  /// The next micro-batch: nothing is ready.
  void reset();
  /// Throws CheckError for an unknown parameter, and for one that was ready before.
  void mark_ready(const Parameter& parameter);
  /// The next bucket, once all its parameters and all buckets before it are ready.
  std::optional<size_t> take();
  /// Throws CheckError naming a parameter that is not ready, if there is one.
  void check_all_ready() const;

 private:
  std::vector<Parameter*> parameters_;
  std::unordered_map<const Parameter*, size_t> index_;
  std::vector<size_t> bucket_of_;    // by parameter
  std::vector<size_t> bucket_size_;  // parameters of each bucket
  std::vector<bool> ready_;          // by parameter
  std::vector<size_t> num_missing_;  // by bucket: parameters that are not ready
  size_t next_ = 0;                  // first bucket not taken
};

}  // namespace sixfold::parallel
