#include "runtime/comm/host/group_links.h"

#include <algorithm>

namespace sixfold::comm {

namespace {
constexpr size_t kPage = 4096;

size_t signatures_bytes(int size) {
  return (static_cast<size_t>(size) * sizeof(SignatureRing) + kPage - 1) / kPage * kPage;
}
}  // namespace

GroupLinks::GroupLinks(std::shared_ptr<SharedRegion> region, int rank, std::vector<int> members,
                       const LinkOptions& options, Memory& memory, PeerMemory& peers, Pacer* pacer)
    : region_(std::move(region)),
      rank_(rank),
      members_(std::move(members)),
      options_(options),
      memory_(memory),
      peers_(peers),
      pacer_(pacer),
      send_(members_.size() * kNumChannels),
      recv_(members_.size() * kNumChannels) {
  SIXFOLD_CHECK_LE(region_bytes(size(), options), region_->bytes(), "region of a group's links");
}

GroupLinks::~GroupLinks() {
  memory_.account(Category::Communication, -accounted_bytes_);
}

size_t GroupLinks::region_bytes(int size, const LinkOptions& options) {
  const size_t num_links = static_cast<size_t>(size) * static_cast<size_t>(size) * kNumChannels;
  return signatures_bytes(size) + num_links * LinkMemory::bytes(options.num_slots, options.slot_bytes);
}

SignatureRing& GroupLinks::signatures(int rank) const {
  return reinterpret_cast<SignatureRing*>(region_->data())[rank];
}

std::string GroupLinks::disagreement(int peer) const {
  const SignatureRing& mine = signatures(rank_);
  const SignatureRing& theirs = signatures(peer);
  const uint64_t end = std::min(mine.entered(), theirs.entered());
  for (uint64_t sequence = std::max(mine.oldest(), theirs.oldest()); sequence < end; ++sequence) {
    const auto a = mine.find(sequence), b = theirs.find(sequence);
    if (!a || !b || *a == *b) continue;
    return "operation #" + std::to_string(sequence) + " is (" + to_string(*a) + ") on rank " + std::to_string(rank_) +
           " of the group, (" + to_string(*b) + ") on rank " + std::to_string(peer);
  }
  return "";
}

LinkMemory GroupLinks::link(int sender, int receiver, int channel) const {
  const size_t index = (static_cast<size_t>(sender) * members_.size() + static_cast<size_t>(receiver)) * kNumChannels +
                       static_cast<size_t>(channel);
  const size_t stride = LinkMemory::bytes(options_.num_slots, options_.slot_bytes);
  return LinkMemory::at(region_->data() + signatures_bytes(size()) + index * stride, options_.num_slots,
                        options_.slot_bytes);
}

SendEnd& GroupLinks::to(int peer, int channel) {
  auto& end = send_[static_cast<size_t>(peer * kNumChannels + channel)];
  if (!end) {
    const LinkMemory memory = link(rank_, peer, channel);
    memory.populate();
    const auto bytes = static_cast<int64_t>(LinkMemory::bytes(options_.num_slots, options_.slot_bytes));
    memory_.account(Category::Communication, bytes);
    accounted_bytes_ += bytes;
    end.emplace(memory);
  }
  return *end;
}

RecvEnd& GroupLinks::from(int peer, int channel) {
  auto& end = recv_[static_cast<size_t>(peer * kNumChannels + channel)];
  if (!end) {
    const LinkMemory memory = link(peer, rank_, channel);
    memory.populate();
    end.emplace(memory);
  }
  return *end;
}

}  // namespace sixfold::comm
