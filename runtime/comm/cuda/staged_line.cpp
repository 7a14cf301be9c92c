#include "runtime/comm/cuda/staged_line.h"

#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

constexpr size_t kPageBytes = 4096;

bool overlap(const StagedOperation::Memory& a, const StagedOperation::Memory& b) {
  return a.bytes > 0 && b.bytes > 0 && a.data < b.data + b.bytes && b.data < a.data + a.bytes;
}

}  // namespace

PinnedRing::PinnedRing(StagingDevice& device, Memory& memory, int num_slots, size_t slot_bytes)
    : device_(device), num_slots_(num_slots), slot_bytes_((slot_bytes + kPageBytes - 1) / kPageBytes * kPageBytes) {
  const size_t bytes = static_cast<size_t>(num_slots) * slot_bytes_;
  memory_ = memory.allocate(bytes + kPageBytes, Category::Communication);
  const auto address = reinterpret_cast<uintptr_t>(memory_.get());
  first_ = static_cast<std::byte*>(memory_.get()) + (kPageBytes - address % kPageBytes) % kPageBytes;
  device_.pin(first_, bytes);
}

PinnedRing::~PinnedRing() {
  device_.drain();
  device_.unpin(first_);
}

StagedLine::StagedLine(StagingDevice& device, Memory& memory, int num_slots, size_t slot_bytes,
                       std::function<void(const std::string&)> fail)
    : device_(device), ring_(device, memory, num_slots, slot_bytes), fail_(std::move(fail)) {}

bool StagedLine::advance() {
  bool moved = false;
  Stage before = Stage::Done;  // a piece does not overtake the one before it
  for (Piece& piece : pieces_) {
    while (piece.stage < before && advance(piece)) moved = true;
    before = piece.stage;
  }
  while (!pieces_.empty() && pieces_.front().stage == Stage::Done) pieces_.pop_front();
  while (!operations_.empty() && operations_.front()->done()) operations_.pop_front();
  while (begin_next()) moved = true;
  return moved;
}

/// To its next stage, where it can go there.
bool StagedLine::advance(Piece& piece) {
  StagedOperation& operation = *piece.operation;
  try {
    if (piece.work ? !piece.work->done() : piece.copied && !piece.copied->done()) return false;
    switch (piece.stage) {
      case Stage::ToHost:
        piece.work = operation.on_host_ = operation.start(piece.index, piece.slot);
        piece.stage = Stage::OnHost;
        break;
      case Stage::OnHost:
        if (operation.on_host_ == piece.work) operation.on_host_ = nullptr;
        piece.work = nullptr;
        piece.copied = piece.out.empty() ? nullptr : device_.copy_to_device(piece.out);
        if (piece.copied) operation.last_copy_ = piece.copied;
        ++operation.num_issued_;
        piece.stage = Stage::ToDevice;
        break;
      default:
        ++operation.num_done_;
        piece.stage = Stage::Done;
    }
  } catch (const CommError& error) {
    fail_(operation.describe() + ": " + error.what());
  }
  return true;
}

StagedOperation* StagedLine::next_to_begin() const {
  for (const auto& operation : operations_) {
    if (!operation->begun() || operation->num_begun_ < operation->num_pieces()) return operation.get();
  }
  return nullptr;
}

bool StagedLine::waits_for_earlier(const StagedOperation& operation) const {
  for (const auto& earlier : operations_) {
    if (earlier.get() == &operation) break;
    if (overlap(operation.reads_, earlier->writes_)) return true;
  }
  return false;
}

/// Puts one more piece on its way.
bool StagedLine::begin_next() {
  if (pieces_.size() == static_cast<size_t>(ring_.num_slots())) return false;
  StagedOperation* const operation = next_to_begin();
  if (operation == nullptr) return false;
  try {
    if (!operation->begun() && (waits_for_earlier(*operation) || !operation->ready())) return false;
    const size_t index = operation->num_begun_++;
    std::byte* const slot = ring_.slot(num_begun_++);
    StagedOperation::Copies copies = operation->copies(index, slot);
    std::shared_ptr<StagingEvent> copied = copies.in.empty() ? nullptr : device_.copy_to_host(copies.in);
    pieces_.push_back({operation, index, slot, Stage::ToHost, std::move(copies.out), std::move(copied)});
  } catch (const CommError& error) {
    fail_(operation->describe() + ": " + error.what());
  }
  return true;
}

}  // namespace sixfold::comm
