#include <cstring>

#include "kernels/cuda/checks.h"
#include "kernels/kernel_table.h"

#ifdef __CUDACC__
#include "kernels/cuda/launch.h"
#endif

namespace sixfold::kernels::cuda {

namespace {

void check_on_gpu(const Tensor& tensor, const char* name) {
  SIXFOLD_CHECK(tensor.device().type == DeviceType::Cuda, std::string(name) + " must be on the GPU");
}

}  // namespace

void zero([[maybe_unused]] Context& context, const Tensor& t) {
  check_on_gpu(t, "what is zeroed");
  if (t.bytes() == 0) return;
#ifdef __CUDACC__
  sixfold::cuda::check_cuda(cudaMemsetAsync(t.raw(), 0, t.bytes(), stream_of(context)), "cudaMemsetAsync of a tensor");
#else
  std::memset(t.raw(), 0, t.bytes());
#endif
}

void copy([[maybe_unused]] Context& context, const Tensor& src, const Tensor& dst) {
  check_on_gpu(src, "copy src");
  check_on_gpu(dst, "copy dst");
  SIXFOLD_CHECK_EQ(src.numel(), dst.numel(), "copy between tensors of different size");
  SIXFOLD_CHECK(src.dtype() == dst.dtype(), "copy between tensors of different dtype");
  if (src.bytes() == 0) return;
#ifdef __CUDACC__
  sixfold::cuda::check_cuda(
      cudaMemcpyAsync(dst.raw(), src.raw(), src.bytes(), cudaMemcpyDeviceToDevice, stream_of(context)),
      "cudaMemcpyAsync between tensors");
#else
  std::memcpy(dst.raw(), src.raw(), src.bytes());
#endif
}

}  // namespace sixfold::kernels::cuda
