// Proof, while training, that replicas are replicas: hashes of the weights, compared over ranks and between runs.
//
// The hash is XXH3 with 64 bits (xxhash.com) of the bytes of the elements.
#pragma once

#include <cstdint>

#include "runtime/parallel/strategy.h"

namespace sixfold::parallel {

/// Compares the values of all parameters over the ranks of `group`, each of which holds all of them. Collective; one
/// AllGather of 8 bytes a parameter ("dp.check"). Throws CheckError on every rank, naming the step, the ranks
/// that differ from rank 0 and the first parameter in which they do.
void check_replicas(const UnitList& units, comm::Communicator& group, int64_t step);

/// Hash of all weights, whole, one after the other in the order of their names: equal for every strategy and bucket
/// size that gives the same bits. Collective over the strategy's group; holds one whole parameter at a time, from
/// `memory`.
uint64_t hash_weights(const UnitList& units, Strategy& strategy, Memory& memory);

}  // namespace sixfold::parallel
