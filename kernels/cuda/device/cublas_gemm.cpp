#include "kernels/cuda/device/cuda_queue.h"
#include "kernels/cuda/gemm.h"

namespace sixfold::kernels::cuda {

bool multiply(Context& context, const Gemm& gemm) {
  // On a GPU there are no other queues.
  return static_cast<CudaQueue&>(*context.queue).multiply(gemm);
}

}  // namespace sixfold::kernels::cuda
