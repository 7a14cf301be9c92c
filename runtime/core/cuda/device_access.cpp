// What programs ask of a GPU (device.h), in builds with CUDA.
#include <algorithm>
#include <vector>

#include "runtime/core/cuda/cuda_error.h"
#include "runtime/core/cuda/device_memory.h"
#include "runtime/core/cuda/stream.h"
#include "runtime/core/device.h"

namespace sixfold {

using cuda::check_cuda;

std::shared_ptr<Allocator> make_device_allocator(size_t bytes) {
  return std::make_shared<cuda::DeviceArena>(bytes);
}

size_t free_device_bytes() {
  size_t free_bytes = 0, total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  return free_bytes;
}

void copy_to_device(void* device, const void* host, size_t bytes) {
  if (bytes > 0) check_cuda(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy to the GPU");
}

void copy_to_host(void* host, const void* device, size_t bytes) {
  if (bytes > 0) check_cuda(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy to the host");
}

DeviceSpeed measure_device() {
  constexpr size_t kBytes = size_t{256} << 20;
  constexpr int kCopies = 5;
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  const cuda::DeviceBlock from(kBytes), to(kBytes);
  const cuda::Stream stream;
  from.zero(kBytes, stream.get());
  std::vector<double> seconds;
  for (int i = 0; i < 1 + kCopies; ++i) {
    const cuda::Event begin(true), end(true);
    begin.record(stream.get());
    check_cuda(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, stream.get()),
               "cudaMemcpyAsync");
    end.record(stream.get());
    stream.synchronize();
    if (i > 0) seconds.push_back(cuda::elapsed_seconds(begin, end));  // the first one warms up
  }
  std::nth_element(seconds.begin(), seconds.begin() + kCopies / 2, seconds.end());
  return {properties.name, 2.0 * kBytes / seconds[kCopies / 2]};
}

}  // namespace sixfold
