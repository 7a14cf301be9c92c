// Gradients of parameters that tensor parallelism does not cut, and whole parameters from the pieces of those that it
// does.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/parallel/strategy.h"

namespace sixfold::parallel {

/// The gradient of every partial segment becomes the sum over the ranks of `tp_group`, which have the same segments
/// (Parameter::partial). Once a step, between finish_gradients() and whoever reads them. One AllReduce for all of them
/// ("tp.grads"), in a temporary of `place`, Category::Communication; none where nothing is partial. Collective over
/// tp_group; nullptr: one rank.
void sum_partial_gradients(const std::vector<UpdateSegment>& segments, comm::Communicator* tp_group,
                           const kernels::Place& place);

/// The full tensor of `parameter`, of its file_shape(), from each rank's `piece`, of its local shape: values, gradients
/// or moments, as Strategy gathers them. The piece itself where nothing is cut, else a new tensor. On the CPU.
/// Collective over tp_group (AllGather, "tp.whole"); nullptr: one rank.
Tensor assemble(const Parameter& parameter, const Tensor& piece, comm::Communicator* tp_group,
                const kernels::Place& place);

}  // namespace sixfold::parallel
