// StagingDevice on a GPU: a stream for each direction, and events that are used again and again.
#include "runtime/comm/cuda/staging_device.h"
#include "runtime/core/cuda/cuda_error.h"
#include "runtime/core/cuda/event_pool.h"

namespace sixfold::comm {

namespace {

using cuda::check_cuda;

class CopyEvent final : public StagingEvent {
 public:
  CopyEvent(std::shared_ptr<cuda::EventPool> pool, cudaStream_t stream) : event_(std::move(pool), stream) {}
  bool done() override { return event_.event().done(); }
  void order_before(void* stream) override {
    check_cuda(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event_.event().get(), 0), "cudaStreamWaitEvent");
  }

 private:
  cuda::PooledEvent event_;
};

class CudaStaging final : public StagingDevice {
 public:
  explicit CudaStaging(int device) : device_(device), to_host_(open()), to_device_(open()) {}

  std::unique_ptr<StagingEvent> mark(void* stream) override { return event_of(static_cast<cudaStream_t>(stream)); }
  std::unique_ptr<StagingEvent> copy_to_host(std::span<const StagingCopy> copies) override {
    for (const StagingCopy& c : copies) {
      check_cuda(cudaMemcpyAsync(c.host, c.device, c.bytes, cudaMemcpyDeviceToHost, to_host_.get()),
                 "cudaMemcpyAsync to the host");
    }
    return event_of(to_host_.get());
  }
  std::unique_ptr<StagingEvent> copy_to_device(std::span<const StagingCopy> copies) override {
    for (const StagingCopy& c : copies) {
      check_cuda(cudaMemcpyAsync(c.device, c.host, c.bytes, cudaMemcpyHostToDevice, to_device_.get()),
                 "cudaMemcpyAsync to the GPU");
    }
    return event_of(to_device_.get());
  }
  void pin(void* data, size_t bytes) override {
    check_cuda(cudaHostRegister(data, bytes, cudaHostRegisterPortable),
               "cudaHostRegister of " + std::to_string(bytes) + " bytes");
  }
  void unpin(void* data) noexcept override { cudaHostUnregister(data); }
  void drain() noexcept override {
    cudaStreamSynchronize(to_host_.get());
    cudaStreamSynchronize(to_device_.get());
  }

 private:
  /// The calling thread may be the rank's progress thread, for which no GPU is current.
  void make_current() const { check_cuda(cudaSetDevice(device_), "cudaSetDevice " + std::to_string(device_)); }
  cuda::Stream open() const {
    make_current();
    return cuda::Stream(cuda::Stream::Priority::High);
  }
  std::unique_ptr<StagingEvent> event_of(cudaStream_t stream) const {
    make_current();
    return std::make_unique<CopyEvent>(events_, stream);
  }

  int device_;
  cuda::Stream to_host_, to_device_;
  std::shared_ptr<cuda::EventPool> events_ = std::make_shared<cuda::EventPool>();
};

}  // namespace

std::unique_ptr<StagingDevice> make_cuda_staging(int device_index) {
  return std::make_unique<CudaStaging>(device_index);
}

}  // namespace sixfold::comm
