#include "runtime/comm/host/group_links.h"

#include <algorithm>

namespace sixfold::comm {

namespace {
constexpr size_t kPage = 4096;

size_t signatures_bytes(int num_mates) {
  return (static_cast<size_t>(num_mates) * sizeof(SignatureRing) + kPage - 1) / kPage * kPage;
}
}  // namespace

GroupLinks::GroupLinks(GroupMedia media, int rank, std::vector<int> members, const LinkOptions& options, Memory& memory,
                       PeerMemory& peers, Doorbells& doorbells, Pacer* pacer)
    : media_(std::move(media)),
      rank_(rank),
      members_(std::move(members)),
      options_(options),
      memory_(memory),
      peers_(peers),
      doorbells_(doorbells),
      pacer_(pacer),
      signatures_(members_.size()),
      send_(members_.size() * kNumChannels),
      recv_(members_.size() * kNumChannels) {
  SIXFOLD_CHECK_LE(region_bytes(num_mates(), options), media_.region->bytes(), "region of a group's links");
  const std::vector<int>& mates = media_.hosts.ranks_of(media_.hosts.node_of(rank_));
  auto* tables = reinterpret_cast<SignatureRing*>(media_.region->data());
  for (size_t i = 0; i < mates.size(); ++i) signatures_[static_cast<size_t>(mates[i])] = tables + i;
  for (int peer = 0; peer < size(); ++peer) link_classes_.push_back(media_.nodes.link(rank_, peer));
  SIXFOLD_CHECK(media_.carrier || !media_.hosts.spans_nodes(), "a group on several hosts has a carrier");
}

GroupLinks::~GroupLinks() {
  memory_.account(Category::Communication, -accounted_bytes_);
}

size_t GroupLinks::region_bytes(int num_mates, const LinkOptions& options) {
  const size_t num_links = static_cast<size_t>(num_mates) * static_cast<size_t>(num_mates) * kNumChannels;
  return signatures_bytes(num_mates) + num_links * LinkMemory::bytes(options.num_slots, options.slot_bytes);
}

int GroupLinks::num_mates() const {
  return static_cast<int>(media_.hosts.ranks_of(media_.hosts.node_of(rank_)).size());
}

double GroupLinks::last_entered_s(uint64_t sequence) const {
  double last = 0;
  for (const SignatureRing* mate : signatures_) {
    if (mate != nullptr) last = std::max(last, mate->entered_at(sequence));
  }
  return last;
}

std::string GroupLinks::disagreement(int peer) const {
  if (!shares_memory(peer)) return "";
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

LinkMemory GroupLinks::shared_link(int sender, int receiver, int channel) const {
  const int pair = media_.hosts.rail_of(sender) * num_mates() + media_.hosts.rail_of(receiver);
  const size_t index = static_cast<size_t>(pair) * kNumChannels + static_cast<size_t>(channel);
  const size_t stride = LinkMemory::bytes(options_.num_slots, options_.slot_bytes);
  return LinkMemory::at(media_.region->data() + signatures_bytes(num_mates()) + index * stride, options_.num_slots,
                        options_.slot_bytes);
}

Doorbell* GroupLinks::doorbell_of(int peer) const {
  return shares_memory(peer) ? &doorbells_.of(members_[static_cast<size_t>(peer)]) : nullptr;
}

void GroupLinks::account_link() {
  const auto bytes = static_cast<int64_t>(LinkMemory::bytes(options_.num_slots, options_.slot_bytes));
  memory_.account(Category::Communication, bytes);
  accounted_bytes_ += bytes;
}

SendEnd& GroupLinks::to(int peer, int channel) {
  auto& end = send_[static_cast<size_t>(peer * kNumChannels + channel)];
  if (!end) {
    const LinkMemory memory =
        shares_memory(peer) ? shared_link(rank_, peer, channel) : media_.carrier->link_to(peer, channel);
    memory.populate();
    account_link();
    end.emplace(memory, doorbell_of(peer));
  }
  return *end;
}

RecvEnd& GroupLinks::from(int peer, int channel) {
  auto& end = recv_[static_cast<size_t>(peer * kNumChannels + channel)];
  if (!end) {
    const bool shared = shares_memory(peer);
    const LinkMemory memory = shared ? shared_link(peer, rank_, channel) : media_.carrier->link_from(peer, channel);
    memory.populate();
    if (!shared) account_link();
    end.emplace(memory, doorbell_of(peer));
  }
  return *end;
}

}  // namespace sixfold::comm
