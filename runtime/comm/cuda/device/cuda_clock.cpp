// StreamClock of a GPU: timed events.
#include "runtime/comm/observe/stream_clock.h"
#include "runtime/core/cuda/event_pool.h"

namespace sixfold::comm {

namespace {

class CudaClock final : public StreamClock {
 public:
  std::unique_ptr<Moment> now(void* stream) override {
    return std::make_unique<EventMoment>(events_, static_cast<cudaStream_t>(stream));
  }
  std::optional<double> seconds(const Moment& from, const Moment& to) override {
    const cuda::Event& begin = event_of(from);
    const cuda::Event& end = event_of(to);
    if (!end.done()) return {};
    return cuda::elapsed_seconds(begin, end);
  }

 private:
  struct EventMoment final : Moment {
    EventMoment(std::shared_ptr<cuda::EventPool> pool, cudaStream_t stream) : pooled(std::move(pool), stream) {}
    cuda::PooledEvent pooled;
  };
  static const cuda::Event& event_of(const Moment& moment) {
    return static_cast<const EventMoment&>(moment).pooled.event();
  }

  std::shared_ptr<cuda::EventPool> events_ = std::make_shared<cuda::EventPool>(cuda::EventPool::Timed::Yes);
};

}  // namespace

std::unique_ptr<StreamClock> make_cuda_clock() {
  return std::make_unique<CudaClock>();
}

}  // namespace sixfold::comm
