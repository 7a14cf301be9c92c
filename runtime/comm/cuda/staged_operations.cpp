#include "runtime/comm/cuda/staged_operations.h"

#include <algorithm>

#include "runtime/comm/cuda/piece_cuts.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

size_t pieces_of(size_t count, size_t step) {
  return std::max<size_t>(1, (count + step - 1) / step);
}

StagedOperation::Memory memory_of(const void* data, size_t elements, DType dtype) {
  return {static_cast<const std::byte*>(data), data == nullptr ? 0 : elements * dtype_bytes(dtype)};
}

StagedOperation::Memory input_of(const Collective& c, const Call& call) {
  const bool reads = c.primitive != Primitive::Broadcast || call.rank == call.root;
  return memory_of(c.in, reads ? input_count(call) : 0, c.dtype);
}

StagedOperation::Memory output_of(const Collective& c, const Call& call) {
  const bool writes = c.primitive != Primitive::Broadcast || call.rank != call.root;
  return memory_of(c.out, writes ? output_count(call) : 0, c.dtype);
}

std::vector<StagingCopy> copies_of(const std::vector<PieceSpan>& spans, void* device, std::byte* host, DType dtype) {
  const size_t bytes = dtype_bytes(dtype);
  std::vector<StagingCopy> copies;
  for (const PieceSpan& span : spans) {
    copies.push_back(
        {static_cast<std::byte*>(device) + span.offset * bytes, host + span.staged * bytes, span.count * bytes});
  }
  return copies;
}

}  // namespace

StagedCollective::StagedCollective(OwnGroup& parts, const Collective& collective, const Signature& whole,
                                   const WatchedOperation& watched, size_t piece_bytes,
                                   std::unique_ptr<StagingEvent> ready, std::shared_ptr<const LargestCount> largest,
                                   std::string text)
    : StagedOperation(input_of(collective, collective.call(parts.rank(), parts.topology())),
                      output_of(collective, collective.call(parts.rank(), parts.topology()))),
      parts_(parts),
      c_(collective),
      tag_(collective.tag),
      whole_(whole),
      watched_(watched),
      step_(piece_step(collective.primitive, parts.size(), dtype_bytes(collective.dtype), piece_bytes)),
      side_bytes_(piece_side_bytes(parts.size(), piece_bytes)),
      ready_(std::move(ready)),
      largest_(std::move(largest)),
      text_(std::move(text)) {}

bool StagedCollective::ready() {
  if (largest_ && !largest_->found->done()) return false;
  if (c_.check) {
    const std::string problem = c_.check();
    if (!problem.empty()) throw CommError(problem);
    c_.check = nullptr;
  }
  return !ready_ || ready_->done();
}

size_t StagedCollective::num_pieces() const {
  return pieces_of(largest_ ? static_cast<size_t>(largest_->value) : c_.count, step_);
}

PieceCut StagedCollective::cut(size_t piece) const {
  const size_t begin = piece * step_;
  return cut_piece(call(), begin, c_.counts ? begin + step_ : std::min(begin + step_, c_.count));
}

/// A broadcast is in place.
std::byte* StagedCollective::input_side(std::byte* slot) const {
  return c_.primitive == Primitive::Broadcast ? slot + side_bytes_ : slot;
}

StagedOperation::Copies StagedCollective::copies(size_t piece, std::byte* slot) {
  const PieceCut found = cut(piece);
  return {copies_of(found.in, const_cast<void*>(c_.in), input_side(slot), c_.dtype),  // only read
          copies_of(found.out, c_.out, slot + side_bytes_, c_.dtype)};
}

std::shared_ptr<WorkState> StagedCollective::start(size_t piece, std::byte* slot) {
  const PieceCut found = cut(piece);
  Collective part = c_;
  part.in = input_side(slot);
  part.out = c_.primitive == Primitive::Reduce && parts_.rank() != c_.root ? nullptr : slot + side_bytes_;
  part.count = found.count;
  part.counts = found.counts;
  part.in_place = c_.primitive == Primitive::Broadcast;
  part.tag = tag_;
  return parts_.start_part(part, whole_, watched_);
}

StagedMessage::StagedMessage(OwnGroup& parts, const P2p& transfer, const WatchedOperation& watched, size_t piece_bytes,
                             std::unique_ptr<StagingEvent> ready, std::string text)
    : StagedOperation(
          transfer.kind == P2p::Kind::Send ? memory_of(transfer.buf.data, transfer.buf.count, transfer.buf.dtype)
                                           : Memory{},
          transfer.kind == P2p::Kind::Send ? Memory{}
                                           : memory_of(transfer.buf.data, transfer.buf.count, transfer.buf.dtype)),
      parts_(parts),
      transfer_(transfer),
      watched_(watched),
      step_(piece_step(Primitive::Send, 1, dtype_bytes(transfer.buf.dtype), piece_bytes)),
      ready_(std::move(ready)),
      text_(std::move(text)) {}

size_t StagedMessage::num_pieces() const {
  return pieces_of(transfer_.buf.count, step_);
}

size_t StagedMessage::count_of(size_t piece) const {
  return std::min(step_, transfer_.buf.count - piece * step_);
}

StagedOperation::Copies StagedMessage::copies(size_t piece, std::byte* slot) {
  const size_t bytes = dtype_bytes(transfer_.buf.dtype), count = count_of(piece);
  if (count == 0) return {};
  const StagingCopy copy{static_cast<std::byte*>(transfer_.buf.data) + piece * step_ * bytes, slot, count * bytes};
  return transfer_.kind == P2p::Kind::Send ? Copies{{copy}, {}} : Copies{{}, {copy}};
}

std::shared_ptr<WorkState> StagedMessage::start(size_t piece, std::byte* slot) {
  P2p part = transfer_;
  part.buf = {slot, count_of(piece), transfer_.buf.dtype};
  return parts_.transfer_part(part, transfer_.buf.count, watched_);
}

}  // namespace sixfold::comm
