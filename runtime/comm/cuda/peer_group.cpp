#include "runtime/comm/cuda/peer_group.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>

#include "runtime/comm/host/host_barrier.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

/// All members tell where their arenas are; then none leaves before all have opened what they share.
std::vector<std::byte*> reach_all(PeerDevice& device, OwnGroup& host) {
  const ArenaHandle own = device.arena_handle();
  std::vector<ArenaHandle> handles(static_cast<size_t>(host.size()));
  Collective gather;
  gather.primitive = Primitive::AllGather;
  gather.in = own.data();
  gather.out = handles.data();
  gather.count = sizeof(ArenaHandle);
  gather.dtype = DType::U8;
  gather.tag = "gpu.arenas";
  host.context().engine.wait(*host.start(gather));
  std::vector<std::byte*> bases;
  for (const ArenaHandle& handle : handles) bases.push_back(device.reach(handle));
  bases[static_cast<size_t>(host.rank())] = device.arena().base();
  return bases;
}

PeerBoard open_board(OwnGroup& host) {
  const size_t bytes = PeerBoard::region_bytes(host.size());
  std::vector<int> members;
  for (int r = 0; r < host.size(); ++r) members.push_back(host.world_rank(r));
  auto region = host.size() == 1 ? SharedRegion::anonymous(bytes)
                                 : host.context().regions.open(host.key() + "/gpu", bytes, members);
  host_barrier(host, "gpu.arenas");
  return PeerBoard(std::move(region), host.rank(), host.size());
}

}  // namespace

PeerGroup::PeerGroup(PeerDevice& device, std::unique_ptr<OwnGroup> host, PeerRunner runner, OpenGroup open)
    : device_(device),
      host_(std::move(host)),
      runner_(runner),
      open_(std::move(open)),
      group_plans_(host_->planning()),
      bases_(reach_all(device_, *host_)),
      board_(open_board(*host_)),
      planner_(setting()),
      messages_(setting()) {
  const std::lock_guard guard(engine().lock());
  engine().add(*this);
  watched_ = host_->watch_device();
}

PeerGroup::~PeerGroup() {
  const bool failing = std::uncaught_exceptions() > 0;  // as OwnGroup
  engine().close(*this, host_->key(), !failing);
  const std::lock_guard guard(engine().lock());
  if (failing || engine().abort().is_set()) {
    device_.abort();
  } else {
    board_.leave();
  }
  // Others may still have flags to raise here.
  std::vector<PeerArena::Piece> pieces = planner_.release();
  for (PeerArena::Piece& piece : messages_.release()) pieces.push_back(std::move(piece));
  device_.arena().retire(std::move(pieces),
                         [region = board_.region(), size = size()] { return PeerBoard::is_left(*region, size); });
}

void PeerGroup::fail(const PeerWork& work, const std::string& reason) {
  engine().fail(work.describe() + ": " + reason);
}

void PeerGroup::check_agreement(const PeerWork& work) {
  const std::string problem = work.disagreement();
  if (!problem.empty()) fail(work, problem);
}

PeerLine& PeerGroup::collectives() {
  if (!collectives_) {
    collectives_ = std::make_unique<PeerLine>(
        runner_, device_.open_queue(setting().waiting_blocks(device_.shape().max_splits)), board_, topology(), rank(),
        0, [this](PeerPart& part) { return planner_.prepare(part); });
  }
  return *collectives_;
}

/// Up to 1 MiB the flags go with the data, where nobody asks for something else.
bool PeerGroup::is_low_latency(const Collective& c) const {
  return runner_ == PeerRunner::Launched && c.primitive == Primitive::AllReduce && c.algorithm == Algorithm::Auto &&
         host_->context().algorithm == Algorithm::Auto && c.count > 0 && size() > 1 && size() <= kMaxRanksPerGrid &&
         c.count * dtype_bytes(c.dtype) <= kTwoShotBytes && last_number_ < std::numeric_limits<uint32_t>::max();
}

/// What is left to us, where the host's choice does not suit: its tables price other links.
Algorithm PeerGroup::automatic(const Collective& c) const {
  if (is_low_latency(c)) return Algorithm::Direct;  // whose bits it has
  const bool open = c.algorithm == Algorithm::Auto && host_->context().algorithm == Algorithm::Auto;
  const bool rings = runner_ == PeerRunner::Launched && c.primitive == Primitive::AllReduce;
  return open && rings && !host_->context().deterministic ? Algorithm::Ring : c.algorithm;
}

Algorithm PeerGroup::algorithm_for(const Collective& c) const {
  Collective chosen = c;
  chosen.algorithm = automatic(c);
  return group_plans_.choose(chosen);
}

std::shared_ptr<WorkState> PeerGroup::start(const Collective& c) {
  if (c.host_memory) return host_->start(c);
  const double start = seconds_now();
  const std::lock_guard guard(engine().lock());
  OperationWatch::Standstill still(engine().watch(), start);
  engine().check_abort();
  PeerLine& line = collectives();
  Collective chosen = c;
  chosen.algorithm = automatic(c);
  const std::shared_ptr<const GroupPlan> plan = group_plans_.plan_for(chosen);
  Signature signature = plan->signature;
  PeerPart part;
  part.algorithm = signature.algorithm;
  if (is_low_latency(c)) {
    part.number = ++last_number_;
    signature.algorithm = Algorithm::Auto;  // it does not meet with the list of the same name
  }
  const uint64_t sequence = next_sequence_++;
  const WatchedOperation watched = engine().watch().issue(
      plan->row, {watched_, plan->tag_name, signature, sequence, -1, -1, plan->bytes, plan->predicted_sent_bytes},
      start);
  auto work = std::make_shared<PeerWork>(engine(), c.stream);
  work->name(std::string(primitive_name(c.primitive)) + " #" + std::to_string(sequence) + " (" + plan->tag + ")",
             host_->key(), watched);
  board_.collectives(rank()).publish(sequence, signature, start);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    work->expect({peer, world_rank(peer), &board_.collectives(rank()), &board_.collectives(peer), sequence, rank()});
  }
  check_agreement(*work);
  if (c.check) {  // of what an operation of the host group has brought
    engine().finish(*host_);
    const std::string problem = c.check();
    if (!problem.empty()) fail(*work, problem);
  }
  part.work = work;
  part.watched = watched;
  part.dtype = c.dtype;
  part.count = c.count;
  part.input = c.in;
  part.output = c.out;
  if (c.stream != nullptr) part.after = device_.mark(c.stream);
  part.call = c.call(rank(), topology());
  part.op = c.op;
  part.counts = c.counts;
  line.push(std::move(part));
  poll();
  still.count(work->watched(), seconds_now());
  return work;
}

std::shared_ptr<WorkState> PeerGroup::transfer(std::span<const P2p> transfers) {
  const double start = seconds_now();
  const std::lock_guard guard(engine().lock());
  OperationWatch::Standstill still(engine().watch(), start);
  engine().check_abort();
  const auto work = std::make_shared<PeerWork>(engine(), transfers.front().options.stream);
  for (const P2p& transfer : transfers) messages_.open(transfer);
  std::vector<PeerPart> parts;
  for (const P2p& transfer : transfers) parts.push_back(enter(transfer, work, start));
  check_agreement(*work);
  for (size_t i = 0; i < parts.size(); ++i) messages_.push(transfers[i], std::move(parts[i]));
  poll();
  still.count(work->watched(), seconds_now());
  return work;
}

PeerPart PeerGroup::enter(const P2p& transfer, const std::shared_ptr<PeerWork>& work, double start) {
  const bool sends = transfer.kind == P2p::Kind::Send;
  const Primitive primitive = sends ? Primitive::Send : Primitive::Recv;
  const std::string& tag = transfer.options.tag;
  const uint64_t bytes = transfer.buf.count * dtype_bytes(transfer.buf.dtype);
  PhasedRow& row = engine().table().row(tag, primitive, Algorithm::Auto, "own", size());
  const uint64_t sequence = messages_.enter(transfer, world_rank(transfer.peer), *work, start);
  const Signature signature{primitive, transfer.buf.dtype, ReduceOp::Sum, Algorithm::Auto, 0, transfer.buf.count};
  PeerPart part;
  part.work = work;
  part.watched = engine().watch().issue(row,
                                        {watched_, RecordedName(tag), signature, sequence, transfer.peer,
                                         transfer.options.lane, bytes, sends ? static_cast<double>(bytes) : 0.0},
                                        start);
  work->name(std::string(sends ? "send to" : "recv from") + " rank " + std::to_string(transfer.peer) + " #" +
                 std::to_string(sequence) + " (" + tag + ")",
             host_->key(), part.watched);
  part.to = sends ? transfer.peer : -1;
  part.dtype = transfer.buf.dtype;
  part.count = transfer.buf.count;
  part.input = part.output = transfer.buf.data;
  if (transfer.options.stream != nullptr) part.after = device_.mark(transfer.options.stream);
  return part;
}

bool PeerGroup::poll() {
  if (engine().abort().is_set()) {
    device_.abort();
    return false;
  }
  bool moved = false;
  for_each_line([&](PeerLine& line) {
    try {
      moved |= line.advance();
    } catch (const CommError& error) {
      if (engine().abort().is_set()) throw;  // the others know
      const PeerWork& work = line.failed();
      fail(work, std::string(error.what()) + "; " + work.diagnose());
    }
  });
  return moved;
}

std::shared_ptr<WorkState> PeerGroup::outstanding() {
  std::shared_ptr<WorkState> found;
  for_each_line([&](PeerLine& line) {
    if (!found) found = line.outstanding();
  });
  return found;
}

}  // namespace sixfold::comm
