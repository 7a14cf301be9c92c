#include "runtime/comm/cuda/peer_messages.h"

#include <algorithm>

#include "runtime/comm/host/group_links.h"

namespace sixfold::comm {

namespace {
constexpr size_t kMaxPlans = 64;  // of a line, as PeerPlanner
}

PeerMessages::Pair::Pair(const PeerSetting& setting, int peer_, int lane_)
    : peer(peer_), lane(lane_), links(setting.device.arena(), setting.rank, setting.bases, setting.link_bytes()) {
  const int num_splits = setting.runner == PeerRunner::Stepped ? 1 : setting.device.shape().message_splits;
  const int low = std::min(setting.rank, peer), high = std::max(setting.rank, peer);
  for (int split = 0; split < num_splits; ++split) keys.emplace_back(low, high, 0, split);
  for (int split = 0; low != high && split < num_splits; ++split) keys.emplace_back(high, low, 0, split);
  own = links.take(keys);
  setting.board.offer_to(peer, lane, own);
}

PeerMessages::PeerMessages(const PeerSetting& setting) : setting_(setting) {}
PeerMessages::~PeerMessages() = default;

std::vector<PeerArena::Piece> PeerMessages::release() {
  std::vector<PeerArena::Piece> all;
  for (const auto& [key, pair] : pairs_) {
    for (PeerArena::Piece& piece : pair->links.release()) all.push_back(std::move(piece));
  }
  return all;
}

PeerMessages::Pair& PeerMessages::pair(const P2p& transfer) {
  std::unique_ptr<Pair>& found = pairs_[{transfer.peer, transfer.options.lane}];
  if (!found) found = std::make_unique<Pair>(setting_, transfer.peer, transfer.options.lane);
  return *found;
}

PeerLine& PeerMessages::line(Pair& pair, P2p::Kind kind) {
  std::unique_ptr<PeerLine>& line = pair.lines[static_cast<size_t>(kind)];
  if (!line) {
    line = std::make_unique<PeerLine>(
        setting_.runner, setting_.device.open_queue(setting_.waiting_blocks(setting_.device.shape().message_splits)),
        setting_.board, setting_.topology, setting_.rank, kNumScheduleChannels + pair.lane,
        [this, &pair, kind](PeerPart& part) { return prepare(part, pair, kind); });
  }
  return *line;
}

uint64_t PeerMessages::enter(const P2p& transfer, int world_rank, PeerWork& work, double now_s) {
  Pair& pair = this->pair(transfer);
  const bool sends = transfer.kind == P2p::Kind::Send;
  const uint64_t sequence = pair.next_sequence[static_cast<size_t>(transfer.kind)]++;
  const int sender = sends ? setting_.rank : pair.peer, receiver = sends ? pair.peer : setting_.rank;
  SignatureRing& sent = setting_.board.messages(sender, receiver, pair.lane, PeerBoard::Side::Sender);
  SignatureRing& received = setting_.board.messages(sender, receiver, pair.lane, PeerBoard::Side::Receiver);
  SignatureRing &mine = sends ? sent : received, &theirs = sends ? received : sent;
  // Both sides call it a send, so that the two of a matching pair are equal.
  mine.publish(sequence, {Primitive::Send, transfer.buf.dtype, ReduceOp::Sum, Algorithm::Auto, 0, transfer.buf.count},
               now_s);
  work.expect({pair.peer, world_rank, &mine, &theirs, sequence, setting_.rank});
  return sequence;
}

void PeerMessages::push(const P2p& transfer, PeerPart part) {
  line(pair(transfer), transfer.kind).push(std::move(part));
}

bool PeerMessages::prepare(PeerPart& part, Pair& pair, P2p::Kind kind) const {
  if (!pair.is_connected) {
    const auto theirs = setting_.board.offer_from(pair.peer, pair.lane);
    if (!theirs) return false;
    pair.links.connect(pair.keys, [&](int rank) { return rank == setting_.rank ? pair.own : *theirs; });
    pair.is_connected = true;
  }
  auto& plans = pair.plans[static_cast<size_t>(kind)];
  if (plans.size() == kMaxPlans) plans.clear();
  std::shared_ptr<PeerPlan>& plan = plans[{part.dtype, part.count}];
  if (!plan) plan = make_plan(part, pair, kind);
  part.plan = plan;
  return true;
}

std::shared_ptr<PeerPlan> PeerMessages::make_plan(const PeerPart& part, Pair& pair, P2p::Kind kind) const {
  Call call;
  call.primitive = Primitive::Broadcast;
  call.size = 2;
  call.count = part.count;
  const size_t element_bytes = dtype_bytes(part.dtype);
  const Lowered lowered =
      lower(call, {true, true}, Algorithm::Direct,
            setting_.shape(part.count * element_bytes, setting_.device.shape().message_splits, 1, element_bytes));
  PlanOwner owner;
  const bool sends = kind == P2p::Kind::Send;
  owner.rank = sends ? 0 : 1;
  owner.members = sends ? std::vector<int>{setting_.rank, pair.peer} : std::vector<int>{pair.peer, setting_.rank};
  return std::make_shared<PeerPlan>(lowered, owner, part.dtype, ReduceOp::Sum, setting_.device.arena(), pair.links);
}

}  // namespace sixfold::comm
