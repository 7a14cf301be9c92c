// StreamClock: when a stream of a GPU gets to a point of it.
#pragma once

#include <memory>
#include <optional>

namespace sixfold::comm {

/// Used by the rank's own thread. Throws CommError where the GPU refuses.
class StreamClock {
 public:
  class Moment {
   public:
    virtual ~Moment() = default;
  };

  virtual ~StreamClock() = default;
  /// When all that has been issued to `stream` (a cudaStream_t) so far will have run. Never blocks.
  virtual std::unique_ptr<Moment> now(void* stream) = 0;
  /// From one to the other, of one stream; nothing while that has not come to both.
  virtual std::optional<double> seconds(const Moment& from, const Moment& to) = 0;
};

/// Of the GPU that is current for the calling thread. Only in builds with CUDA.
std::unique_ptr<StreamClock> make_cuda_clock();

}  // namespace sixfold::comm
