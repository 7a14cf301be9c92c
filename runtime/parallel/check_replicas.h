// Proof, while training, that replicas are replicas: hashes of the weights, compared over ranks and between runs.
//
// The hash is XXH3 with 64 bits (xxhash.com) of the bytes of the elements.
#pragma once

#include <cstdint>

#include "runtime/parallel/strategy.h"

namespace sixfold::parallel {

/// Compares the values of all parameters, as the strategy puts them together on each rank, over the ranks of `group`:
/// the copies of DDP, ZeRO-1 and 2, what each rank gathers with ZeRO-3, and across nodes the copies of HSDP.
/// Collective; one AllGather of 8 bytes a parameter ("dp.check"), with ZeRO-3 the parameters themselves besides; holds
/// one whole parameter at a time, from `memory`. Throws CheckError on every rank, naming the step, the ranks that
/// differ from rank 0 and the first parameter in which they do.
void check_replicas(const UnitList& units, Strategy& strategy, comm::Communicator& group, Memory& memory, int64_t step);

/// Hash of all weights, whole, one after the other in the order of their names, each followed by its `moments` (of the
/// optimizer, each [strategy.state_elements()]) where there are any and it is not frozen: equal for every strategy and
/// bucket size that gives the same bits. Collective over the strategy's group; holds one whole parameter at a time,
/// from `memory`.
uint64_t hash_weights(const UnitList& units, Strategy& strategy, const std::vector<Tensor>& moments, Memory& memory);

}  // namespace sixfold::parallel
