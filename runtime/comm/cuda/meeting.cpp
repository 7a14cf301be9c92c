#include "runtime/comm/cuda/meeting.h"

#include <algorithm>

#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

/// Counts per peer of an AllToAll, of which each rank knows its own row and column: here they are put together.
std::vector<size_t> all_counts(const Call& call, const std::vector<std::optional<Deposit>>& deposits) {
  if (call.primitive != Primitive::AllToAll) return *deposits[0]->counts;
  const auto n = static_cast<size_t>(call.size);
  std::vector<size_t> table(n * n);
  for (size_t from = 0; from < n; ++from) {
    for (size_t to = 0; to < n; ++to) table[from * n + to] = (*deposits[from]->counts)[from * n + to];
  }
  return table;
}

}  // namespace

std::shared_ptr<Rendezvous> Meeting::deposit(const Key& key, size_t num_ranks, size_t rank, Deposit deposit) {
  std::shared_ptr<Rendezvous>& open = open_[key];
  if (!open) open = std::make_shared<Rendezvous>(num_ranks);
  for (size_t other = 0; other < num_ranks; ++other) {
    const std::optional<Deposit>& theirs = open->deposits_[other];
    if (!theirs || theirs->signature == deposit.signature) continue;
    throw CommError("rank " + std::to_string(other) + " of the group has entered " + to_string(theirs->signature) +
                    ", this rank " + to_string(deposit.signature));
  }
  open->deposits_[rank] = std::move(deposit);
  ++open->num_arrived_;
  std::shared_ptr<Rendezvous> rendezvous = open;
  if (rendezvous->num_arrived_ == num_ranks) open_.erase(key);
  return rendezvous;
}

std::shared_ptr<Rendezvous> Meeting::arrive(const std::string& group, uint64_t sequence, const Call& call, int rank,
                                            Deposit own) {
  const std::lock_guard lock(mutex_);
  const auto size = static_cast<size_t>(call.size);
  std::shared_ptr<Rendezvous> rendezvous = deposit({group, sequence}, size, static_cast<size_t>(rank), std::move(own));
  if (rendezvous->num_arrived_ == size) launch(*rendezvous, call);
  return rendezvous;
}

void Meeting::launch(Rendezvous& rendezvous, const Call& call) {
  const Signature& signature = rendezvous.deposits_[0]->signature;
  GridCollective collective;
  collective.call = call;
  collective.algorithm = signature.algorithm;
  collective.dtype = signature.dtype;
  collective.op = signature.op;
  std::vector<size_t> counts;
  if (rendezvous.deposits_[0]->counts) {
    counts = all_counts(call, rendezvous.deposits_);
    collective.call.counts = &counts;
    collective.call.count = *std::max_element(counts.begin(), counts.end());
  }
  for (const std::optional<Deposit>& deposit : rendezvous.deposits_) {
    collective.in.push_back(deposit->in);
    collective.out.push_back(deposit->out);
    collective.in_place.push_back(deposit->in_place);
    collective.after.push_back(deposit->mark);
  }
  rendezvous.work_ = device_.launch(collective);
  rendezvous.launched_.store(true, std::memory_order_release);
}

std::shared_ptr<Rendezvous> Meeting::arrive_message(const std::string& lane, uint64_t sequence, int side, Deposit own) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Rendezvous> rendezvous = deposit({lane, sequence}, 2, static_cast<size_t>(side), std::move(own));
  if (rendezvous->num_arrived_ < 2) return rendezvous;
  const Deposit &sent = *rendezvous->deposits_[0], &received = *rendezvous->deposits_[1];
  rendezvous->work_ = device_.launch(GridCopy{
      sent.in, received.out, sent.signature.count * dtype_bytes(sent.signature.dtype), {sent.mark, received.mark}});
  rendezvous->launched_.store(true, std::memory_order_release);
  return rendezvous;
}

std::vector<int> Meeting::absent(const Rendezvous& rendezvous) {
  const std::lock_guard lock(mutex_);
  std::vector<int> ranks;
  for (size_t rank = 0; rank < rendezvous.deposits_.size(); ++rank) {
    if (!rendezvous.deposits_[rank]) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace sixfold::comm
