// Streams and events that end with their owner. Each belongs to the device that was current when it was made.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

namespace sixfold::cuda {

class Event;

/// A stream that does not wait for the legacy default stream.
class Stream {
 public:
  enum class Priority { Normal, High };
  /// Throws CommError.
  explicit Stream(Priority priority = Priority::Normal);
  ~Stream();
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }

  cudaStream_t get() const { return stream_; }
  /// What is issued here later starts after `event`.
  void wait_for(const Event& event) const;
  /// Blocks the calling thread until all that was issued is done. Throws CommError.
  void synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  /// timed: elapsed_seconds() may be asked of it. Throws CommError.
  explicit Event(bool timed = false);
  ~Event();
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }

  cudaEvent_t get() const { return event_; }
  void record(cudaStream_t stream) const;
  /// Whether all before it is done; true for one that was never recorded. Throws CommError for what failed before it.
  bool done() const;

 private:
  cudaEvent_t event_ = nullptr;
};

/// Between two timed events that are done.
double elapsed_seconds(const Event& begin, const Event& end);

}  // namespace sixfold::cuda
