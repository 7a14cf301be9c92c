// One send or one receive over a lane's link, slice by slice, without ever blocking. Where the buffer of a long send is
// in a heap that the peer reaches, the slots carry headers only, and the receiver reads it there.
#pragma once

#include "runtime/comm/host/executor.h"

namespace sixfold::comm {

class P2pRun {
 public:
  /// `sequence` counts the messages of this link (peer, direction, lane). `agreed_count`: that of the transfer, or of
  /// the message that it is a part of. An arriving message of another such count or dtype calls `fail`, which outlives
  /// the run. A message of count 0 is one empty slot, so that it keeps its place among the
  /// others.
  P2pRun(GroupLinks& links, const P2p& transfer, uint64_t agreed_count, uint64_t sequence, const Fail& fail);
  bool advance();
  bool done() const { return done_; }
  /// Whether a part of a message to receive is there, though an emulated link may not let it be seen yet.
  bool has_arrived() const { return !is_send() && links_.from(transfer_.peer, channel()).ready(); }
  bool is_send() const { return transfer_.kind == P2p::Kind::Send; }
  const P2p& transfer() const { return transfer_; }
  uint64_t sequence() const { return sequence_; }
  SentBytes sent() const;
  /// To receive: says so to the sender, which then knows since when it has been waited for (peer_there_s()).
  void post(double now_s) { links_.from(transfer_.peer, channel()).post(sequence_, now_s); }
  /// When the peer was there: to receive, when its first slice was; to send, when it had posted the receive. 0: that is
  /// not known, as of senders on other hosts.
  double peer_there_s() const;
  /// "send to rank 3 #17 (pp.activation)"
  std::string describe() const;

 private:
  bool advance_send();
  bool advance_recv();
  Signature signature() const;
  int channel() const { return kNumScheduleChannels + transfer_.options.lane; }

  GroupLinks& links_;
  P2p transfer_;
  uint64_t agreed_count_, sequence_;
  const Fail& fail_;
  size_t total_bytes_;
  bool lends_;   // the receiver reads in the sender's buffer
  bool drains_;  // a send that is done when its link is drained, as in executor.h
  size_t moved_bytes_ = 0;
  double first_slice_s_ = 0;
  bool all_moved_ = false, done_ = false;
};

}  // namespace sixfold::comm
