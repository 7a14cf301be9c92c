#include "runtime/comm/cuda/peer_planner.h"

#include <algorithm>
#include <numeric>

#include "runtime/comm/host/group_links.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {
constexpr size_t kMaxPlans = 256;  // then all are made anew: programs whose shapes never repeat do not fill the arena
constexpr size_t kLineBytes = kFlagStride * sizeof(uint64_t);
}  // namespace

BlockShape PeerSetting::shape(size_t bytes, int max_splits, int num_channels, size_t element_bytes) const {
  const PeerShape shape = device.shape();
  if (runner == PeerRunner::Stepped) {
    return BlockShape::of(1, shape.num_slots, shape.stepped_slot_bytes, element_bytes);
  }
  const auto useful =
      static_cast<int>(std::min<size_t>(static_cast<size_t>(max_splits), bytes / shape.bytes_per_split));
  return BlockShape::of(std::clamp(useful, 1, std::max(1, max_splits / num_channels)), shape.num_slots,
                        shape.slot_bytes, element_bytes);
}

size_t PeerSetting::link_bytes() const {
  const PeerShape shape = device.shape();
  return static_cast<size_t>(shape.num_slots) *
         (runner == PeerRunner::Stepped ? shape.stepped_slot_bytes : shape.slot_bytes);
}

PeerPlanner::PeerPlanner(const PeerSetting& setting)
    : setting_(setting), links_(setting.device.arena(), setting.rank, setting.bases, setting.link_bytes()) {}

std::vector<PeerArena::Piece> PeerPlanner::release() {
  std::vector<PeerArena::Piece> all = links_.release();
  for (PeerArena::Piece& piece : pieces_) all.push_back(std::move(piece));
  return all;
}

/// One round: this rank's offer, made once, and what all have offered, once they have.
std::optional<std::vector<LinkOffer>> PeerPlanner::exchange(const std::function<LinkOffer()>& take,
                                                            std::span<const uint64_t> words) {
  if (!is_offered_) {
    setting_.board.offer(next_round_, take(), words);
    is_offered_ = true;
  }
  auto offers = setting_.board.offers(next_round_);
  if (!offers) return std::nullopt;
  is_offered_ = false;
  ++next_round_;
  return offers;
}

bool PeerPlanner::prepare(PeerPart& part) {
  if (part.number != 0) return prepare_words(part);
  const Signature signature{part.call.primitive, part.dtype, part.op, part.algorithm, part.call.root, part.count};
  const PlanKey key{signature.pack(), part.call.in_place};
  if (!lowered_) {
    if (part.counts && part.call.primitive == Primitive::AllToAll && !learn_counts(part)) return false;
    const auto found = part.counts ? plans_.end() : plans_.find(key);
    if (found != plans_.end()) {
      part.plan = found->second;
      return true;
    }
    lowered_ = lower_for(part);
    new_links_ = links_.missing(*lowered_, [](int rank) { return rank; });
  }
  if (!new_links_.empty() && !make_links()) return false;
  part.plan = make_plan(part);
  lowered_.reset();
  knows_counts_ = false;
  if (part.counts) return true;  // blocks of different size are planned anew each time
  if (plans_.size() == kMaxPlans) plans_.clear();
  plans_.emplace(key, part.plan);
  return true;
}

/// Of counts per peer each rank knows what it sends and what it receives: here they are put together.
bool PeerPlanner::learn_counts(PeerPart& part) {
  if (knows_counts_) return true;
  const auto n = static_cast<size_t>(setting_.size);
  const auto own = part.counts->begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(setting_.rank) * n);
  const std::vector<uint64_t> row(own, own + static_cast<std::ptrdiff_t>(n));
  const uint64_t round = next_round_;
  if (!exchange([] { return LinkOffer{}; }, row)) return false;
  auto table = std::make_shared<std::vector<size_t>>();
  for (int rank = 0; rank < setting_.size; ++rank) {
    for (uint64_t count : setting_.board.words(round, rank)) table->push_back(count);
  }
  part.call.count = *std::max_element(table->begin(), table->end());
  part.call.counts = table.get();
  part.counts = std::move(table);
  knows_counts_ = true;
  return true;
}

Lowered PeerPlanner::lower_for(const PeerPart& part) const {
  // Where other ranks have their buffers does not matter: chunks do not depend on it (chunk_cuts.h).
  const std::vector<bool> in_place(static_cast<size_t>(setting_.size), part.call.in_place);
  Call one = part.call;
  one.pass_count = part.counts ? 0 : part.call.count;
  const int num_channels = find_builder(part.call.primitive, part.algorithm)(one).num_channels;
  const size_t element_bytes = dtype_bytes(part.dtype);
  return lower(
      part.call, in_place, part.algorithm,
      setting_.shape(part.call.count * element_bytes, setting_.device.shape().max_splits, num_channels, element_bytes));
}

bool PeerPlanner::make_links() {
  const auto offers = exchange([this] { return links_.take(new_links_); });
  if (!offers) return false;
  links_.connect(new_links_, [&](int rank) { return (*offers)[static_cast<size_t>(rank)]; });
  new_links_.clear();
  return true;
}

std::shared_ptr<PeerPlan> PeerPlanner::make_plan(const PeerPart& part) {
  PeerArena& arena = setting_.device.arena();
  PlanOwner owner;
  owner.rank = setting_.rank;
  owner.members.resize(static_cast<size_t>(setting_.size));
  std::iota(owner.members.begin(), owner.members.end(), 0);
  owner.num_flag_lines =
      static_cast<size_t>(kNumScheduleChannels) * static_cast<size_t>(setting_.device.shape().max_splits);
  if (flags_ == nullptr) {
    pieces_.push_back(arena.take(2 * owner.num_flag_lines * kLineBytes, PeerArena::Kind::Clean));
    flags_ = pieces_.back().data();
  }
  owner.flags = flags_;
  const auto make = [&] { return std::make_shared<PeerPlan>(*lowered_, owner, part.dtype, part.op, arena, links_); };
  try {
    return make();
  } catch (const CommError&) {
    if (plans_.empty()) throw;
    plans_.clear();  // makes room
    return make();
  }
}

bool PeerPlanner::prepare_words(PeerPart& part) {
  const auto n = static_cast<size_t>(setting_.size);
  const size_t area_bytes = low_latency_area_bytes(n);
  if (!areas_) {
    areas_ = exchange([&] {
      pieces_.push_back(setting_.device.arena().take(2 * area_bytes, PeerArena::Kind::Clean));
      return LinkOffer{pieces_.back().offset(), 0};
    });
    if (!areas_) return false;
  }
  LowLatencyLaunch launch;
  LowLatencyArguments& a = launch.arguments;
  a.input = part.input;
  a.output = part.output;
  a.count = static_cast<uint32_t>(part.count);
  a.rank = static_cast<uint32_t>(setting_.rank);
  a.num_ranks = static_cast<uint32_t>(n);
  a.number = part.number;
  for (size_t rank = 0; rank < n; ++rank) {
    std::byte* const areas = setting_.bases[rank] + (*areas_)[rank].flags;
    a.words[rank] = reinterpret_cast<uint64_t*>(areas + a.number % 2 * area_bytes);
  }
  a.two_shots = part.count * dtype_bytes(part.dtype) > kOneShotBytes;
  a.aligned = is_aligned_to_pack(part.input) && is_aligned_to_pack(part.output);
  a.scale = part.op == ReduceOp::Avg ? 1.0f / static_cast<float>(n) : 1.0f;
  launch.dtype = part.dtype;
  launch.op = part.op;
  part.words = launch;
  return true;
}

}  // namespace sixfold::comm
