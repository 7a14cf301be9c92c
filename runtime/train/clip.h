// Clipping by the global norm of all gradients.
//
//   sum   = gradient_sum_of_squares(segments)     where a group holds the gradients in shards: AllReduce(sum) of it
//   clip  = clip_factor(sum, max_norm)            the optimizer reads each gradient times clip.scale
//
// Source: Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", 2013, algorithm 1.
#pragma once

#include <vector>

#include "kernels/kernels.h"
#include "runtime/parallel/strategy.h"

namespace sixfold::train {

/// In double, segment after segment, so it depends on the segments and on nothing else: not on the number of threads,
/// and with one segment a parameter not on buckets. Not finite exactly when an element is not (squares of f32 fit a
/// double).
double gradient_sum_of_squares(kernels::Context& context, const std::vector<parallel::UpdateSegment>& segments);

struct Clip {
  double norm = 0;     // before clipping
  bool finite = true;  // false: no update can be made of these gradients
  float scale = 1;     // what each gradient is multiplied by
};

/// scale = min(1, max_norm / norm); max_norm == 0: 1, nothing is clipped. The clipped norm is max_norm itself: nothing
/// is added to the denominator (PyTorch adds 1e-6), since 0 / 0 cannot arise.
Clip clip_factor(double sum_of_squares, double max_norm);

}  // namespace sixfold::train
