// CudaQueue: a stream of a GPU, and what kernels need beside it.
#pragma once

#include <memory>

#include "kernels/cuda/device/cublas_products.h"
#include "kernels/cuda/staging_ring.h"
#include "kernels/queue.h"
#include "runtime/core/cuda/device_memory.h"
#include "runtime/core/cuda/event_pool.h"

namespace sixfold::kernels::cuda {

class CudaQueue final : public Queue {
 public:
  /// On the GPU that is current for the calling thread. Throws CommError, and ConfigError where there is no cuBLASLt.
  CudaQueue();
  ~CudaQueue() override;

  const KernelTable& kernels() const override;
  void* stream() const override { return stream_.get(); }
  void to_device(void* device, const void* host, size_t bytes) override;
  void to_host(void* host, const void* device, size_t bytes) override;
  /// See gemm.h.
  bool multiply(const Gemm& gemm) { return products_.multiply(gemm, stream_.get()); }

 private:
  sixfold::cuda::Stream stream_;
  // Copies go through pinned memory: of other memory of the host, they wait for the whole device to be reached.
  sixfold::cuda::PinnedMemory staging_;
  std::shared_ptr<sixfold::cuda::EventPool> events_ = std::make_shared<sixfold::cuda::EventPool>();
  // Of the first part, on its way to the GPU.
  StagingRing<std::unique_ptr<sixfold::cuda::PooledEvent>> ring_;
  sixfold::cuda::DeviceBlock workspace_;
  CublasProducts products_;
};

}  // namespace sixfold::kernels::cuda
