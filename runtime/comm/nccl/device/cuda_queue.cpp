// StreamQueue on a GPU.
#include "runtime/comm/nccl/stream_queue.h"
#include "runtime/core/cuda/cuda_error.h"
#include "runtime/core/cuda/stream.h"
#include "runtime/core/device.h"

namespace sixfold::comm {

namespace {

class EventMark final : public QueueMark {
 public:
  explicit EventMark(cudaStream_t stream) { event_.record(stream); }
  bool done() override { return event_.done(); }
  void order_before(void* stream) override {
    cuda::check_cuda(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event_.get(), 0), "cudaStreamWaitEvent");
  }

 private:
  cuda::Event event_;
};

class CudaQueue final : public StreamQueue {
 public:
  void* handle() override { return stream_.get(); }
  void wait_for(void* stream) override {
    const cuda::Event event;
    event.record(static_cast<cudaStream_t>(stream));
    stream_.wait_for(event);
  }
  std::unique_ptr<QueueMark> mark() override { return std::make_unique<EventMark>(stream_.get()); }

 private:
  cuda::Stream stream_{cuda::Stream::Priority::High};
};

}  // namespace

std::shared_ptr<const NcclSetup> make_cuda_nccl_setup() {
  const CudaProbe probe = probe_cuda();
  if (probe.num_devices == 0) throw ConfigError("--comm nccl: " + probe.problem + " (allowed here: own)");
  auto setup = std::make_shared<NcclSetup>();
  setup->open_queue = [] { return std::make_unique<CudaQueue>(); };
  return setup;
}

}  // namespace sixfold::comm
