// PeerArena: the one block of device memory of a rank that peers reach, handed out in pieces without touching the
// driver. Part of it is clean: its pieces hold zeroes when they are taken, as flags and words must.
//
// When a group ends on one rank, kernels of other members may still write to what it had here: flags that say that a
// message was received. So its pieces are retired, and come back once all members have ended the group.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/core/arena.h"

namespace sixfold::comm {

/// A point of a stream of a device: what was issued before it.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  /// Never blocks. Throws CommError when something has failed, or when a kernel gave up waiting: then it says where.
  virtual bool done() = 0;
  /// What is issued to `stream` (a cudaStream_t) from now on follows it.
  virtual void order_before(void* stream) = 0;
};

class PeerArena {
 public:
  /// Zeroes memory of the arena, in order with nothing but itself.
  using Zero = std::function<std::shared_ptr<DeviceMark>(std::byte* begin, size_t bytes)>;
  enum class Kind : uint8_t { Clean, Any };

  /// Of `bytes` bytes from `base`, of which the first `clean_bytes` are zero, and the clean ones.
  PeerArena(std::byte* base, size_t bytes, size_t clean_bytes, Zero zero);

  /// Part of the arena; goes back when it ends.
  class Piece {
   public:
    Piece() = default;
    Piece(Piece&& other) noexcept { *this = std::move(other); }
    Piece& operator=(Piece&& other) noexcept;
    ~Piece();
    std::byte* data() const { return arena_->base_ + offset_; }
    /// From the arena's base.
    size_t offset() const { return offset_; }
    size_t bytes() const { return bytes_; }
    Kind kind() const { return kind_; }

   private:
    friend class PeerArena;
    PeerArena* arena_ = nullptr;
    size_t offset_ = 0, bytes_ = 0;
    Kind kind_ = Kind::Any;
  };

  /// bytes > 0. Throws CommError that says how much is left.
  Piece take(size_t bytes, Kind kind);
  /// Keeps `pieces` until is_unused() and, those that are clean, until they are zero again. is_unused: looked at now
  /// and then, by any thread of the rank.
  void retire(std::vector<Piece> pieces, std::function<bool()> is_unused);

  std::byte* base() const { return base_; }
  /// Of pieces that are taken or retired.
  size_t used_bytes();

 private:
  struct Retired {
    std::vector<Piece> pieces;
    std::function<bool()> is_unused;
    std::vector<std::shared_ptr<DeviceMark>> zeroed;
  };
  Arena& of(Kind kind) { return kind == Kind::Clean ? clean_ : any_; }
  void collect();

  std::byte* base_;
  size_t clean_bytes_;
  Zero zero_;
  std::mutex mutex_;  // of the two: plans may end on any thread
  Arena clean_, any_;
  std::list<Retired> retired_;
};

}  // namespace sixfold::comm
