#include "runtime/parallel/wire.h"

namespace sixfold::parallel {

Tensor to_wire(kernels::Context& context, const Tensor& grads, DType dtype) {
  if (dtype == DType::F32) return grads;
  Tensor wire = Tensor::empty(grads.shape(), dtype, context.memory, Category::Communication);
  kernels::convert(context, grads, wire);
  return wire;
}

void from_wire(kernels::Context& context, const Tensor& wire, const Tensor& grads) {
  if (wire.dtype() != grads.dtype()) kernels::convert(context, wire, grads);
}

}  // namespace sixfold::parallel
