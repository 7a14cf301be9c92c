#include "runtime/parallel/check_replicas.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "runtime/parallel/bucket.h"

namespace sixfold::parallel {

void check_replicas(const UnitList& units, Strategy& strategy, comm::Communicator& group, Memory& memory,
                    int64_t step) {
  if (group.size() == 1) return;
  const std::vector<Parameter*> parameters = parameters_of(units);
  std::vector<int64_t> mine;
  for (const Parameter* parameter : parameters) {
    const Tensor whole = Tensor::empty(parameter->local_shape(), DType::F32, memory, Category::Other);
    strategy.gather_value(*parameter, whole);
    mine.push_back(static_cast<int64_t>(XXH3_64bits(whole.raw(), whole.bytes())));
  }
  const size_t count = mine.size();
  std::vector<int64_t> all(count * static_cast<size_t>(group.size()));
  group.all_gather({mine.data(), count, DType::I64}, {all.data(), all.size(), DType::I64}, {.tag = "dp.check"}).wait();

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

uint64_t hash_weights(const UnitList& units, Strategy& strategy, const std::vector<Tensor>& moments, Memory& memory) {
  std::vector<Parameter*> parameters = parameters_of(units);
  std::sort(parameters.begin(), parameters.end(), [](auto* a, auto* b) { return a->name < b->name; });
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const Parameter* parameter : parameters) {
    const Tensor whole = Tensor::empty(parameter->local_shape(), DType::F32, memory, Category::Other);
    strategy.gather_value(*parameter, whole);
    XXH3_64bits_update(&state, whole.raw(), whole.bytes());
    if (parameter->frozen) continue;
    for (const Tensor& moment : moments) {
      strategy.gather_moment(*parameter, moment, whole);
      XXH3_64bits_update(&state, whole.raw(), whole.bytes());
    }
  }
  return XXH3_64bits_digest(&state);
}

}  // namespace sixfold::parallel
