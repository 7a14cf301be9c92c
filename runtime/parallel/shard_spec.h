// ShardSpec: how tensor parallelism cuts one parameter. Initialisation, gathering, norms and checkpoints use it.
#pragma once

#include <cstdint>

#include "runtime/core/tensor.h"

namespace sixfold::parallel {

/// Dim `dim` of the full tensor consists of `parts` equal parts (a fused qkv has 3), each cut into `count` equal
/// pieces; rank `index` of the group holds piece `index` of every part. count == 1: replicated.
struct ShardSpec {
  int dim = 0;
  int parts = 1;
  int index = 0;
  int count = 1;

  /// The shape of the piece of a tensor of shape `full`. Throws CheckError when the dim does not divide.
  Shape local_shape(const Shape& full) const;
  /// Row-major index in the full tensor of element `local_index` of the piece.
  int64_t global_index(const Shape& full, int64_t local_index) const;
};

}  // namespace sixfold::parallel
