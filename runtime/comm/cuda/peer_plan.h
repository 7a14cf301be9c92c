// PeerPlan: what a rank runs on its own device for one shape of collective or message: tables in its arena.
#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/cuda/peer_device.h"
#include "runtime/comm/cuda/peer_links.h"
#include "runtime/comm/cuda/program_image.h"

namespace sixfold::comm {

/// Who a lowered list is for.
struct PlanOwner {
  int rank = 0;              // of the lists
  std::vector<int> members;  // ranks of the group, by rank of the lists
  /// Lines of RankProgram::published, then of seen; for lists whose channels do not wait for one another, nullptr.
  std::byte* flags = nullptr;
  size_t num_flag_lines = 0;  // of each
};

class PeerPlan {
 public:
  /// All links of `lowered` that the owner has an end of are there. Takes memory of the arena: throws CommError.
  PeerPlan(const Lowered& lowered, const PlanOwner& owner, DType dtype, ReduceOp op, PeerArena& arena,
           const PeerLinks& links);

  /// Brings the tables to the device, in order with `queue`, the first time.
  void upload(PeerQueue& queue);
  /// The owner's rank, its buffers and its program.
  ProgramLaunch launch(const void* input, void* output) const;

  const ProgramImage& image() const { return image_; }
  bool is_empty() const { return image_.program.num_passes == 0; }
  /// What the owner sends.
  uint64_t sent_bytes() const { return sent_bytes_; }
  size_t slot_bytes() const { return image_.program.slot_elements * dtype_bytes(dtype_); }
  /// The rank of the group at the other end of a connection.
  int peer_of(uint32_t channel, uint8_t connection, bool sends) const {
    return (sends ? send_peers_ : recv_peers_)[channel][connection];
  }

 private:
  DType dtype_;
  ReduceOp op_;
  int rank_;  // of the group
  uint64_t sent_bytes_;
  std::vector<std::vector<int>> send_peers_, recv_peers_;  // by channel and connection
  ProgramImage image_;
  PeerArena::Piece tables_, workspace_;
  size_t programs_at_ = 0;
  std::vector<std::byte> bytes_;  // of the tables, until they are uploaded
};

}  // namespace sixfold::comm
