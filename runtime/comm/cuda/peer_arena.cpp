#include "runtime/comm/cuda/peer_arena.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {
constexpr size_t kPieceAlignment = 512;  // bytes, as CUDA aligns its own
}

PeerArena::PeerArena(std::byte* base, size_t bytes, size_t clean_bytes, Zero zero)
    : base_(base),
      clean_bytes_(clean_bytes),
      zero_(std::move(zero)),
      clean_(clean_bytes, kPieceAlignment),
      any_(bytes - clean_bytes, kPieceAlignment) {}

PeerArena::Piece& PeerArena::Piece::operator=(Piece&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(offset_, other.offset_);
  std::swap(bytes_, other.bytes_);
  std::swap(kind_, other.kind_);
  return *this;
}

PeerArena::Piece::~Piece() {
  if (arena_ == nullptr) return;
  const std::lock_guard lock(arena_->mutex_);
  arena_->of(kind_).release(kind_ == Kind::Clean ? offset_ : offset_ - arena_->clean_bytes_);
}

PeerArena::Piece PeerArena::take(size_t bytes, Kind kind) {
  collect();
  const std::lock_guard lock(mutex_);
  const auto offset = of(kind).allocate(bytes);
  if (!offset) {
    throw CommError("the arena on the GPU: " + std::to_string(bytes) + " bytes, it has room for " +
                    std::to_string(of(kind).largest_free_bytes()));
  }
  Piece piece;
  piece.arena_ = this;
  piece.offset_ = kind == Kind::Clean ? *offset : clean_bytes_ + *offset;
  piece.bytes_ = bytes;
  piece.kind_ = kind;
  return piece;
}

void PeerArena::retire(std::vector<Piece> pieces, std::function<bool()> is_unused) {
  if (!pieces.empty()) retired_.push_back({std::move(pieces), std::move(is_unused), {}});
  collect();
}

void PeerArena::collect() {
  for (auto retired = retired_.begin(); retired != retired_.end();) {
    if (retired->is_unused && retired->is_unused()) {
      retired->is_unused = nullptr;
      for (const Piece& piece : retired->pieces) {
        if (piece.kind() == Kind::Clean) retired->zeroed.push_back(zero_(piece.data(), piece.bytes()));
      }
    }
    const bool free = !retired->is_unused && std::all_of(retired->zeroed.begin(), retired->zeroed.end(),
                                                         [](const auto& mark) { return mark->done(); });
    retired = free ? retired_.erase(retired) : std::next(retired);
  }
}

size_t PeerArena::used_bytes() {
  collect();
  const std::lock_guard lock(mutex_);
  return clean_.used_bytes() + any_.used_bytes();
}

}  // namespace sixfold::comm
