// What goes over the lines of a StagedGroup: collectives, and halves of messages.
#pragma once

#include "runtime/comm/cuda/piece_cuts.h"
#include "runtime/comm/cuda/staged_line.h"
#include "runtime/comm/host/own_group.h"

namespace sixfold::comm {

/// The largest count between any two ranks of an all-to-all with counts per peer, of which each rank knows its own
/// only: the ranks find it out on the host, since they must cut alike.
struct LargestCount {
  int64_t value = 0;
  std::shared_ptr<WorkState> found;
};

class StagedCollective final : public StagedOperation {
 public:
  /// `parts` outlives it. `collective`: with the algorithm chosen. `whole`: what the ranks agree on. `watched`: the
  /// operation. `ready`: nullptr,
  /// or what the input waits for. `largest`: nullptr, or as above.
  StagedCollective(OwnGroup& parts, const Collective& collective, const Signature& whole,
                   const WatchedOperation& watched, size_t piece_bytes, std::unique_ptr<StagingEvent> ready,
                   std::shared_ptr<const LargestCount> largest, std::string text);

  bool ready() override;
  size_t num_pieces() const override;
  Copies copies(size_t piece, std::byte* slot) override;
  std::shared_ptr<WorkState> start(size_t piece, std::byte* slot) override;
  std::string describe() const override { return text_; }

 private:
  Call call() const { return c_.call(parts_.rank(), parts_.topology()); }
  PieceCut cut(size_t piece) const;
  std::byte* input_side(std::byte* slot) const;

  OwnGroup& parts_;
  Collective c_;
  std::string tag_;
  Signature whole_;
  WatchedOperation watched_;
  size_t step_, side_bytes_;
  std::unique_ptr<StagingEvent> ready_;
  std::shared_ptr<const LargestCount> largest_;
  std::string text_;
};

class StagedMessage final : public StagedOperation {
 public:
  /// As StagedCollective.
  StagedMessage(OwnGroup& parts, const P2p& transfer, const WatchedOperation& watched, size_t piece_bytes,
                std::unique_ptr<StagingEvent> ready, std::string text);

  bool ready() override { return !ready_ || ready_->done(); }
  size_t num_pieces() const override;
  Copies copies(size_t piece, std::byte* slot) override;
  std::shared_ptr<WorkState> start(size_t piece, std::byte* slot) override;
  std::string describe() const override { return text_; }

 private:
  size_t count_of(size_t piece) const;

  OwnGroup& parts_;
  P2p transfer_;
  WatchedOperation watched_;
  size_t step_;
  std::unique_ptr<StagingEvent> ready_;
  std::string text_;
};

}  // namespace sixfold::comm
