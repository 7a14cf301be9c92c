// The host executor: runs the schedule of one collective for one rank, slice by slice, without ever blocking.
//
// A step is cut into slices of at most one slot, so the next hop starts before the step has ended. Each channel has a
// cursor of its own that goes from step to step and from pass to pass; channels meet only where a step names another in
// `after`, and then slice by slice.
//
// Where the schedule allows it and the memory is in a heap that peers reach (shared_heap.h), a slice may stay out of
// the slot, which then carries its header alone: it lands, that is the sender writes it to its place in the receiver's
// Output, or it is lent, that is the receiver reads it in the sender's buffer. LinkOptions says for which operations
// that pays. Credits and order are those of staged slices. To other hosts all slices are staged.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/host/group_links.h"
#include "runtime/comm/host/plan.h"
#include "runtime/comm/observe/operation_watch.h"

namespace sixfold::comm {

/// What a run needs beside the caller's buffers. Owned by the group, reused by the next run.
struct Workspace {
  std::vector<std::byte> scratch, accum;  // grown to what a pass needs
  // Links to wait for at the end: those whose receivers read in this rank's buffers, and those to other hosts, whose
  // slots only leave while this rank takes part.
  std::vector<SendEnd*> draining;
  // By rank, of those on other hosts: the operation, + 1, whose first message has come from it last.
  std::vector<uint64_t> heard;
};

/// Throws CommError; owned by the group, which knows how to tell the other ranks.
using Fail = std::function<void(const std::string& reason)>;

class ScheduleRun {
 public:
  /// All references outlive the run, and no other run uses `workspace` meanwhile. Messages carry `sequence` and
  /// `signature`; one that carries others, or another size, calls `fail`.
  ScheduleRun(GroupLinks& links, const Plan& plan, uint64_t sequence, const Signature& signature, const void* input,
              void* output, Workspace& workspace, const Fail& fail);

  /// Moves every slice that can move; true when any did.
  bool advance();
  bool done() const { return done_; }
  uint64_t sent_bytes() const { return static_cast<uint64_t>(sent_.total); }
  const SentBytes& sent() const { return sent_; }
  /// When the last of the ranks on other hosts that this rank has heard from had sent its first message; 0: none yet.
  double last_heard_s() const { return last_heard_s_; }

 private:
  struct Cursor {
    size_t pass = 0, step = 0, slice = 0;
    bool done = false;
  };

  void begin();
  /// Whether `step`, of another channel, has done the slice that `cursor` stands at, in the same pass.
  bool is_done(const Cursor& cursor, const Schedule& schedule, size_t step) const;
  /// Puts the cursor on the next step of its channel with slices left; false when the channel has none.
  bool settle(int channel, Cursor& cursor);
  bool advance_slice(int channel, Cursor& cursor);
  /// `offset` elements on from where the step's operands begin; `shift`, as in Plan::Pass.
  void move(const Step& step, size_t shift, size_t offset, size_t count);
  /// Where a slice that is sent goes: to `address`, or nowhere, because it stays where it lies.
  struct Target {
    std::byte* address = nullptr;
    uint64_t place = kInSlot;  // as in SlotHeader
  };

  Target choose_target(const Step& step, size_t shift, size_t offset, size_t bytes, SendEnd& to);
  void drain_at_end(SendEnd& to);
  bool lend(const Step& step, size_t shift, size_t offset, size_t bytes, SendEnd& to, Target& target);
  bool land(const Step& step, size_t shift, size_t offset, size_t bytes, Target& target);
  const std::byte* arrived(const Step& step, size_t shift, size_t offset, size_t bytes, const RecvEnd& from);
  bool all_drained();
  void hear(int peer);
  void check_arrived(int peer, const SlotHeader& header, size_t bytes) const;
  std::byte* address(const Slice& slice, size_t shift, size_t offset) const;

  GroupLinks& links_;
  const Plan& plan_;
  uint64_t sequence_;
  Signature signature_;
  std::array<uint64_t, 2> signature_words_;
  const void* input_;
  void* output_;
  Workspace& workspace_;
  const Fail& fail_;
  size_t element_bytes_, accum_bytes_, slice_elements_;
  std::array<Cursor, kNumScheduleChannels> cursors_;
  SentBytes sent_ = kNothingSent;
  double last_heard_s_ = 0;
  bool lands_, lends_;  // whether slices may
  bool begun_ = false, done_ = false;
};

}  // namespace sixfold::comm
