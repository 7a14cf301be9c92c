// StagedLine: operations on device memory that pass through the host in order, piece by piece, in a ring of pinned
// buffers:
//
//   to the host  ->  on the host (a collective there, or a message)  ->  to the device
//
// Pieces of a line go from stage to stage in order, up to one for each buffer at a time, so that one is copied while
// another travels. Those of the next operation follow at once, unless it reads what one before it still has to write.
// Nothing blocks: advance() polls.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/cuda/staging_device.h"
#include "runtime/comm/host/work.h"
#include "runtime/core/memory.h"

namespace sixfold::comm {

/// Buffers that the device copies from and to, pinned once. They lie where peers of the host reach them.
class PinnedRing {
 public:
  /// References outlive it. Throws CommError.
  PinnedRing(StagingDevice& device, Memory& memory, int num_slots, size_t slot_bytes);
  ~PinnedRing();
  PinnedRing(const PinnedRing&) = delete;
  PinnedRing& operator=(const PinnedRing&) = delete;
  int num_slots() const { return num_slots_; }
  std::byte* slot(size_t index) const { return first_ + index % static_cast<size_t>(num_slots_) * slot_bytes_; }

 private:
  StagingDevice& device_;
  int num_slots_;
  size_t slot_bytes_;
  std::shared_ptr<void> memory_;
  std::byte* first_ = nullptr;
};

/// One operation of a line. What is virtual is called by the line alone, in this order for each piece.
class StagedOperation {
 public:
  struct Memory {
    const std::byte* data = nullptr;
    size_t bytes = 0;
  };
  struct Copies {
    std::vector<StagingCopy> in, out;
  };

  StagedOperation(Memory reads, Memory writes) : reads_(reads), writes_(writes) {}
  virtual ~StagedOperation() = default;
  /// Whether its buffers are ready; asked until they are. Throws CommError when it must not run.
  virtual bool ready() = 0;
  /// Once it is ready; at least one.
  virtual size_t num_pieces() const = 0;
  virtual Copies copies(size_t piece, std::byte* slot) = 0;
  /// On the host, when copies().in is done. Does not block.
  virtual std::shared_ptr<WorkState> start(size_t piece, std::byte* slot) = 0;
  /// For error texts: "all_reduce #17 (dp.grads) of group world".
  virtual std::string describe() const = 0;

  bool begun() const { return num_begun_ > 0; }
  /// Everything is handed to the device, and last_copy() is behind it all.
  bool issued() const { return begun() && num_issued_ == num_pieces(); }
  bool done() const { return begun() && num_done_ == num_pieces(); }
  /// nullptr where nothing is copied back.
  const std::shared_ptr<StagingEvent>& last_copy() const { return last_copy_; }
  /// What is on the host now; nullptr: nothing.
  const WorkState* on_host() const { return on_host_.get(); }

 private:
  friend class StagedLine;
  Memory reads_, writes_;
  size_t num_begun_ = 0, num_issued_ = 0, num_done_ = 0;
  std::shared_ptr<StagingEvent> last_copy_;
  std::shared_ptr<WorkState> on_host_;
};

class StagedLine {
 public:
  /// `fail` throws; it is given what the device or the operation complains of. References outlive the line.
  StagedLine(StagingDevice& device, Memory& memory, int num_slots, size_t slot_bytes,
             std::function<void(const std::string&)> fail);
  void push(std::shared_ptr<StagedOperation> operation) { operations_.push_back(std::move(operation)); }
  /// True when anything moved.
  bool advance();

 private:
  enum class Stage : uint8_t { ToHost, OnHost, ToDevice, Done };
  struct Piece {
    StagedOperation* operation;
    size_t index;
    std::byte* slot;
    Stage stage = Stage::ToHost;
    std::vector<StagingCopy> out;
    std::shared_ptr<StagingEvent> copied;  // of the stage; nullptr: nothing to copy
    std::shared_ptr<WorkState> work = nullptr;
  };

  bool advance(Piece& piece);
  bool begin_next();
  StagedOperation* next_to_begin() const;
  bool waits_for_earlier(const StagedOperation& operation) const;

  StagingDevice& device_;
  PinnedRing ring_;
  std::function<void(const std::string&)> fail_;
  size_t num_begun_ = 0;
  std::deque<Piece> pieces_;                                 // oldest first; those of stage Done leave
  std::deque<std::shared_ptr<StagedOperation>> operations_;  // those that are not done
};

}  // namespace sixfold::comm
