// The global norm of all gradients, for clipping: kernels::clip_factor makes a factor of it.
#pragma once

#include <vector>

#include "kernels/kernels.h"
#include "runtime/parallel/strategy.h"

namespace sixfold::train {

/// Whose segments together are all gradients.
struct NormGroups {
  comm::Communicator* shards = nullptr;  // Strategy::shard_group(); nullptr: this rank has them whole
  comm::Communicator* tp = nullptr;      // ranks that layers are cut over; nullptr: none are
  comm::Communicator* pp = nullptr;      // the stages; nullptr: one has the whole model
};
/// sum (i64, the words of a kernels::ExactSum, 0 at first) becomes the sum of squares over the segments of all ranks of
/// the groups (one AllReduce of 160 bytes in each: "dp.norm", "tp.norm", "pp.norm"), the same on all of them; what
/// tensor parallelism does not cut, and a copy on another stage, counts once. NaN exactly when an element on any rank
/// is not finite (squares of f32 fit a double). Collective over the groups.
void gradient_sum_of_squares(kernels::Context& context, const std::vector<parallel::UpdateSegment>& segments,
                             const NormGroups& groups, kernels::SquareSums how, const Tensor& sum);

}  // namespace sixfold::train
