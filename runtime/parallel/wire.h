// What gradients travel as: f32, in place, or bf16, in a copy. Half the bytes cost one rounding (at most 2^-8 of the
// value) of each rank's gradient, and one wherever partial sums pass from rank to rank: only at the end with direct,
// which adds in f32. Sums over micro-batches are f32 on either side.
#pragma once

#include "kernels/kernels.h"

namespace sixfold::parallel {

/// `grads` (f32, any shape) itself where dtype is f32, else a bf16 copy of it, in Category::Communication.
Tensor to_wire(kernels::Context& context, const Tensor& grads, DType dtype);
/// grads = wire, which to_wire made of it. Nothing to do where both are one.
void from_wire(kernels::Context& context, const Tensor& wire, const Tensor& grads);

}  // namespace sixfold::parallel
