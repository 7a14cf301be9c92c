// Clipping by the global norm of all gradients.
//
//   sum   = gradient_sum_of_squares(segments, group)    one AllReduce where a group holds the gradients in shards
//   clip  = clip_factor(sum, max_norm)                  the optimizer reads each gradient times clip.scale
//
// Source: Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", 2013, algorithm 1.
#pragma once

#include <vector>

#include "kernels/kernels.h"
#include "runtime/parallel/strategy.h"

namespace sixfold::train {

enum class NormOrder : uint8_t {
  Segments,  // each segment in double: depends on how gradients are cut into segments, not on threads or algorithms
  None,      // the square of each element added without rounding: the same bits however gradients are cut; slower
};
/// Over the segments of all ranks of `group` (tag "dp.norm"; nullptr: of this rank alone), the same on all of them. Not
/// finite exactly when an element on any rank is not (squares of f32 fit a double). Collective over `group`.
double gradient_sum_of_squares(kernels::Context& context, const std::vector<parallel::UpdateSegment>& segments,
                               comm::Communicator* group, NormOrder order);

struct Clip {
  double norm = 0;     // before clipping
  bool finite = true;  // false: no update can be made of these gradients
  float scale = 1;     // what each gradient is multiplied by
};

/// scale = min(1, max_norm / norm); max_norm == 0: 1, nothing is clipped. The clipped norm is max_norm itself: nothing
/// is added to the denominator (PyTorch adds 1e-6), since 0 / 0 cannot arise.
Clip clip_factor(double sum_of_squares, double max_norm);

}  // namespace sixfold::train
