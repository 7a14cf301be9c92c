#include "runtime/comm/cuda/peer_board.h"

#include "runtime/core/error.h"

namespace sixfold::comm {

PeerBoard::Places::Places(size_t size) {
  const auto after = [](size_t begin, size_t count, size_t bytes) { return (begin + count * bytes + 63) / 64 * 64; };
  words = after(0, size, sizeof(Rank));
  pair_offers = after(words, 2 * size * size, sizeof(std::atomic<uint64_t>));
  flags = after(pair_offers, size * size * kNumLanes, sizeof(Offer));
  messages = after(flags, size * size * kNumBoardChannels, sizeof(Flags));
  end = after(messages, size * size * kNumLanes * 2, sizeof(SignatureRing));
}

size_t PeerBoard::region_bytes(int size) {
  return Places(static_cast<size_t>(size)).end;
}

PeerBoard::PeerBoard(std::shared_ptr<SharedRegion> region, int rank, int size)
    : region_(std::move(region)), rank_(rank), size_(static_cast<size_t>(size)), places_(size_) {}

namespace {
template <typename T>
T& element(const SharedRegion& region, size_t begin, size_t index) {
  return reinterpret_cast<T*>(region.data() + begin)[index];
}
}  // namespace

PeerBoard::Rank& PeerBoard::rank_of(int rank) const {
  return element<Rank>(*region_, 0, static_cast<size_t>(rank));
}

SignatureRing& PeerBoard::collectives(int rank) const {
  return rank_of(rank).collectives;
}

SignatureRing& PeerBoard::messages(int sender, int receiver, int lane, Side side) const {
  const size_t index = (pair(sender, receiver) * kNumLanes + static_cast<size_t>(lane)) * 2 + static_cast<size_t>(side);
  return element<SignatureRing>(*region_, places_.messages, index);
}

std::string PeerBoard::disagreement(const SignatureRing& mine, int rank, const SignatureRing& theirs, int other,
                                    uint64_t sequence) {
  const auto a = mine.find(sequence), b = theirs.find(sequence);
  if (!a || !b || *a == *b) return "";
  return "operation #" + std::to_string(sequence) + " is (" + to_string(*a) + ") on rank " + std::to_string(rank) +
         " of the group, (" + to_string(*b) + ") on rank " + std::to_string(other);
}

std::atomic<uint64_t>* PeerBoard::words_of(uint64_t round, int rank) const {
  const size_t index = (round % 2 * size_ + static_cast<size_t>(rank)) * size_;
  return &element<std::atomic<uint64_t>>(*region_, places_.words, index);
}

void PeerBoard::offer(uint64_t round, const LinkOffer& own, std::span<const uint64_t> words) {
  SIXFOLD_CHECK_LE(words.size(), size_, "words of an offer");
  for (size_t i = 0; i < words.size(); ++i) words_of(round, rank_)[i].store(words[i], std::memory_order_relaxed);
  Offer& entry = rank_of(rank_).offers[round % 2];
  entry.offer = own;
  entry.round_after.store(round + 1, std::memory_order_release);
}

std::optional<std::vector<LinkOffer>> PeerBoard::offers(uint64_t round) const {
  std::vector<LinkOffer> all;
  for (int rank = 0; rank < static_cast<int>(size_); ++rank) {
    const Offer& entry = rank_of(rank).offers[round % 2];
    if (entry.round_after.load(std::memory_order_acquire) != round + 1) return std::nullopt;
    all.push_back(entry.offer);
  }
  return all;
}

std::vector<uint64_t> PeerBoard::words(uint64_t round, int rank) const {
  std::vector<uint64_t> row(size_);
  for (size_t i = 0; i < size_; ++i) row[i] = words_of(round, rank)[i].load(std::memory_order_relaxed);
  return row;
}

void PeerBoard::offer_to(int peer, int lane, const LinkOffer& own) {
  const size_t index = pair(rank_, peer) * kNumLanes + static_cast<size_t>(lane);
  Offer& entry = element<Offer>(*region_, places_.pair_offers, index);
  entry.offer = own;
  entry.round_after.store(1, std::memory_order_release);
}

std::optional<LinkOffer> PeerBoard::offer_from(int peer, int lane) const {
  const size_t index = pair(peer, rank_) * kNumLanes + static_cast<size_t>(lane);
  const Offer& entry = element<Offer>(*region_, places_.pair_offers, index);
  if (entry.round_after.load(std::memory_order_acquire) == 0) return std::nullopt;
  return entry.offer;
}

PeerBoard::Flags& PeerBoard::flags(int sender, int receiver, int channel) const {
  const size_t index = pair(sender, receiver) * kNumBoardChannels + static_cast<size_t>(channel);
  return element<Flags>(*region_, places_.flags, index);
}

void PeerBoard::leave() {
  rank_of(rank_).has_left.store(1, std::memory_order_release);
}

bool PeerBoard::is_left(const SharedRegion& region, int size) {
  for (int rank = 0; rank < size; ++rank) {
    if (element<Rank>(region, 0, static_cast<size_t>(rank)).has_left.load(std::memory_order_acquire) == 0) return false;
  }
  return true;
}

}  // namespace sixfold::comm
