#include "kernels/cuda/device/cuda_queue.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/cuda/table.h"
#include "runtime/core/cuda/cuda_error.h"
#include "runtime/core/device.h"

namespace sixfold::kernels {

namespace cuda {

using sixfold::cuda::check_cuda;

namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;  // of a long copy: one is filled while another travels
constexpr size_t kToDeviceBytes = 4 * kPieceBytes;
constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // what NVIDIA recommends for Hopper

/// copy(offset, bytes) for each piece of a copy.
template <typename Copy>
void for_pieces(size_t bytes, const Copy& copy) {
  for (size_t at = 0; at < bytes; at += kPieceBytes) copy(at, std::min(kPieceBytes, bytes - at));
}

}  // namespace

CudaQueue::CudaQueue()
    : staging_(kToDeviceBytes + kPieceBytes),
      ring_(kToDeviceBytes),
      workspace_(kWorkspaceBytes),
      products_(CublasApi::load(), workspace_.data(), workspace_.bytes()) {}

CudaQueue::~CudaQueue() {
  cudaStreamSynchronize(stream_.get());  // what is still under way uses the memory that ends here
}

const KernelTable& CudaQueue::kernels() const {
  return kernel_table();
}

void CudaQueue::to_device(void* device, const void* host, size_t bytes) {
  for_pieces(bytes, [&](size_t at, size_t count) {
    std::byte* staged = staging_.data() + ring_.take(count, [](const auto& copied) {
      check_cuda(cudaEventSynchronize(copied->event().get()), "cudaEventSynchronize");
    });
    std::memcpy(staged, static_cast<const std::byte*>(host) + at, count);
    check_cuda(
        cudaMemcpyAsync(static_cast<std::byte*>(device) + at, staged, count, cudaMemcpyHostToDevice, stream_.get()),
        "cudaMemcpyAsync of " + std::to_string(count) + " bytes to the GPU");
    ring_.busy_until(std::make_unique<sixfold::cuda::PooledEvent>(events_, stream_.get()));
  });
}

void CudaQueue::to_host(void* host, const void* device, size_t bytes) {
  std::byte* staged = staging_.data() + kToDeviceBytes;
  for_pieces(bytes, [&](size_t at, size_t count) {
    check_cuda(cudaMemcpyAsync(staged, static_cast<const std::byte*>(device) + at, count, cudaMemcpyDeviceToHost,
                               stream_.get()),
               "cudaMemcpyAsync of " + std::to_string(count) + " bytes to the host");
    stream_.synchronize();
    std::memcpy(static_cast<std::byte*>(host) + at, staged, count);
  });
}

}  // namespace cuda

std::unique_ptr<Queue> make_cuda_queue(Device device) {
  SIXFOLD_CHECK(device.type == DeviceType::Cuda, "a queue is of a GPU");
  const CudaProbe probe = probe_cuda();
  if (probe.num_devices == 0) throw ConfigError("--device cuda: " + probe.problem + " (allowed here: auto, cpu)");
  sixfold::cuda::check_cuda(cudaSetDevice(device.index), "cudaSetDevice " + std::to_string(device.index));
  return std::make_unique<cuda::CudaQueue>();
}

}  // namespace sixfold::kernels
