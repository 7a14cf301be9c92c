#include "runtime/parallel/check_replicas.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <span>

#include "runtime/parallel/bucket.h"
#include "runtime/parallel/call_options.h"
#include "runtime/parallel/tp_gradients.h"

namespace sixfold::parallel {

namespace {

/// `mine`: a hash of each of `parameters` on this rank.
void compare(const std::vector<const Parameter*>& parameters, std::vector<int64_t> mine, comm::Communicator& group,
             const kernels::Place& place, const char* tag, int64_t step) {
  const size_t count = mine.size();
  const kernels::Context context = kernels::context_of(place);
  const auto num_hashes = static_cast<int64_t>(count);
  const Tensor sent = Tensor::empty({num_hashes}, DType::I64, place.memory, Category::Other);
  const Tensor received = Tensor::empty({group.size() * num_hashes}, DType::I64, place.memory, Category::Other);
  kernels::from_host(context, Tensor::view(mine.data(), {num_hashes}, DType::I64), sent);
  group.all_gather(sent, received, call_options(context, tag)).wait();
  const Tensor on_host = kernels::on_host(context, received);
  const std::span<const int64_t> all(on_host.data<int64_t>(), count * static_cast<size_t>(group.size()));

  std::string ranks;
  size_t first_different = count;
  for (int r = 1; r < group.size(); ++r) {
    const auto theirs = all.begin() + static_cast<std::ptrdiff_t>(count) * r;
    const size_t at = static_cast<size_t>(std::mismatch(all.begin(), all.begin() + count, theirs).first - all.begin());
    if (at == count) continue;
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(group.world_rank(r));
    first_different = std::min(first_different, at);
  }
  SIXFOLD_CHECK(ranks.empty(), "step " + std::to_string(step) + ": replicas have drifted apart: the weights of rank " +
                                   ranks + " differ from those of rank " + std::to_string(group.world_rank(0)) +
                                   ", first in " + parameters[first_different]->name);
}

}  // namespace

void check_replicas(const UnitList& units, Strategy& strategy, comm::Communicator& group, comm::Communicator* tp_group,
                    const kernels::Place& place, int64_t step) {
  const bool cut = tp_group != nullptr && tp_group->size() > 1;
  if (group.size() == 1 && !cut) return;
  std::vector<const Parameter*> parameters, replicated;
  std::vector<int64_t> hashes, replicated_hashes;
  for (const Parameter* parameter : parameters_of(units)) {
    const Tensor there = Tensor::empty(parameter->local_shape(), DType::F32, place.memory, Category::Other);
    strategy.gather_value(*parameter, there);
    const Tensor whole = kernels::on_host(kernels::context_of(place), there);
    parameters.push_back(parameter);
    hashes.push_back(static_cast<int64_t>(XXH3_64bits(whole.raw(), whole.bytes())));
    if (parameter->shard.count > 1) continue;
    replicated.push_back(parameter);
    replicated_hashes.push_back(hashes.back());
  }
  if (group.size() > 1) compare(parameters, hashes, group, place, "dp.check", step);
  if (cut) compare(replicated, replicated_hashes, *tp_group, place, "tp.check", step);
}

uint64_t hash_weights(const UnitList& units, Strategy& strategy, const std::vector<Tensor>& moments,
                      comm::Communicator* tp_group, const kernels::Place& place) {
  std::vector<Parameter*> parameters = parameters_of(units);
  std::sort(parameters.begin(), parameters.end(), [](auto* a, auto* b) { return a->name < b->name; });
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const Parameter* parameter : parameters) {
    const Tensor piece = Tensor::empty(parameter->local_shape(), DType::F32, place.memory, Category::Other);
    const auto add = [&] {
      const Tensor whole = assemble(*parameter, piece, tp_group, place);
      XXH3_64bits_update(&state, whole.raw(), whole.bytes());
    };
    strategy.gather_value(*parameter, piece);
    add();
    if (parameter->frozen) continue;
    for (const Tensor& moment : moments) {
      strategy.gather_moment(*parameter, moment, piece);
      add();
    }
  }
  return XXH3_64bits_digest(&state);
}

}  // namespace sixfold::parallel
