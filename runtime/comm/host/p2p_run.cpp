#include "runtime/comm/host/p2p_run.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/far_copy.h"
#include "runtime/comm/observe/clock.h"

namespace sixfold::comm {

namespace {
/// What fits into the slots of a link is sent off whether or not the receiver has come. Longer messages end only when
/// it has, so they may be lent, where that pays (LinkOptions).
bool may_lend(size_t bytes, const LinkOptions& options) {
  return bytes > static_cast<size_t>(options.num_slots) * options.slot_bytes && bytes >= options.min_lend_bytes;
}
}  // namespace

P2pRun::P2pRun(GroupLinks& links, const P2p& transfer, uint64_t agreed_count, uint64_t sequence, const Fail& fail)
    : links_(links),
      transfer_(transfer),
      agreed_count_(agreed_count),
      sequence_(sequence),
      fail_(fail),
      total_bytes_(transfer.buf.count * dtype_bytes(transfer.buf.dtype)),
      lends_(is_send() && links.shares_memory(transfer.peer) && may_lend(total_bytes_, links.options()) &&
             links.word_of(transfer.buf.data, total_bytes_) != 0),
      drains_(lends_ || (is_send() && !links.shares_memory(transfer.peer))) {}

Signature P2pRun::signature() const {
  // Both sides name it a send, so that the two signatures of a matching pair are equal.
  return {Primitive::Send, transfer_.buf.dtype, ReduceOp::Sum, Algorithm::Auto, 0, agreed_count_};
}

SentBytes P2pRun::sent() const {
  SentBytes sent = kNothingSent;
  if (is_send()) sent.add(moved_bytes_, links_.link_class(transfer_.peer));
  return sent;
}

double P2pRun::peer_there_s() const {
  if (!is_send()) return first_slice_s_;
  if (!links_.shares_memory(transfer_.peer)) return 0;
  const double posted_s = links_.to(transfer_.peer, channel()).posted_at(sequence_);
  // Gone into the link before the receiver came, which nobody has waited for: as if it had been there from the start.
  return posted_s > 0 ? posted_s : std::numeric_limits<double>::min();
}

std::string P2pRun::describe() const {
  return std::string(is_send() ? "send to" : "recv from") + " rank " + std::to_string(transfer_.peer) + " #" +
         std::to_string(sequence_) + " (" + transfer_.options.tag + ")";
}

bool P2pRun::advance() {
  bool moved = false;
  while (!all_moved_ && (is_send() ? advance_send() : advance_recv())) {
    all_moved_ = moved_bytes_ == total_bytes_;
    moved = true;
  }
  if (all_moved_ && !done_) {
    done_ = !drains_ || links_.to(transfer_.peer, channel()).drained();
    moved |= done_;
  }
  return moved;
}

bool P2pRun::advance_send() {
  SendEnd& to = links_.to(transfer_.peer, channel());
  if (!to.ready()) return false;
  const size_t bytes = std::min(links_.options().slot_bytes, total_bytes_ - moved_bytes_);
  const auto* data = static_cast<const std::byte*>(transfer_.buf.data) + moved_bytes_;
  const uint64_t place = lends_ ? links_.word_of(data, bytes) : kInSlot;
  if (place == kInSlot && bytes > 0) kernels::far_copy(to.slot(), data, bytes);
  const auto words = signature().pack();
  to.header() = {sequence_, {words[0], words[1]}, bytes, place, links_.arrives_ns(transfer_.peer, bytes)};
  to.commit();
  moved_bytes_ += bytes;
  return true;
}

bool P2pRun::advance_recv() {
  RecvEnd& from = links_.from(transfer_.peer, channel());
  if (!GroupLinks::arrived(from)) return false;
  if (first_slice_s_ == 0) first_slice_s_ = seconds_now();
  const SlotHeader& header = from.header();
  const auto words = signature().pack();
  if (header.sequence != sequence_ || header.signature[0] != words[0] || header.signature[1] != words[1]) {
    fail_(describe() + ": rank " + std::to_string(transfer_.peer) + " of the group sent message #" +
          std::to_string(header.sequence) + " (" +
          to_string(Signature::unpack({header.signature[0], header.signature[1]})) + "), this rank receives message #" +
          std::to_string(sequence_) + " (" + to_string(signature()) + ")");
  }
  const std::byte* data =
      header.place == kInSlot ? from.slot() : links_.reach(transfer_.peer, header.place, 0, header.bytes);
  SIXFOLD_CHECK(data != nullptr, "a peer lends what lies in its heap");
  if (header.bytes > 0) std::memcpy(static_cast<std::byte*>(transfer_.buf.data) + moved_bytes_, data, header.bytes);
  moved_bytes_ += header.bytes;
  from.release();
  return true;
}

}  // namespace sixfold::comm
