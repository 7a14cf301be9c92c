#include "runtime/core/cuda/stream.h"

#include "runtime/core/cuda/cuda_error.h"

namespace sixfold::cuda {

Stream::Stream(Priority priority) {
  int lowest = 0, highest = 0;  // numbers fall as the priority rises
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  check_cuda(
      cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority == Priority::High ? highest : lowest),
      "cudaStreamCreateWithPriority");
}

Stream::~Stream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void Stream::wait_for(const Event& event) const {
  check_cuda(cudaStreamWaitEvent(stream_, event.get(), 0), "cudaStreamWaitEvent");
}

void Stream::synchronize() const {
  check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

Event::Event(bool timed) {
  check_cuda(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming),
             "cudaEventCreateWithFlags");
}

Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

void Event::record(cudaStream_t stream) const {
  check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord");
}

bool Event::done() const {
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaErrorNotReady) return false;
  check_cuda(state, "cudaEventQuery");
  return true;
}

double elapsed_seconds(const Event& begin, const Event& end) {
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace sixfold::cuda
