// Proof, while training, that replicas are replicas: hashes of the weights, compared over ranks and between runs.
//
// The hash is XXH3 with 64 bits (xxhash.com) of the bytes of the elements.
#pragma once

#include <cstdint>

#include "runtime/parallel/strategy.h"

namespace sixfold::parallel {

/// Compares the values of all parameters, as the strategy puts them together on each rank, over the ranks of `group`:
/// the copies of DDP, ZeRO-1 and 2, what each rank gathers with ZeRO-3, and across nodes the copies of HSDP; and those
/// of the parameters that tensor parallelism does not cut over the ranks of `tp_group` (nullptr: one rank). Collective
/// over both; one AllGather of 8 bytes a parameter in each ("dp.check", "tp.check"), with ZeRO-3 the parameters
/// themselves besides; holds one whole parameter at a time, from `place`. Throws CheckError on every rank of a group
/// that finds a difference, naming the step, the ranks that differ from its first and the first parameter in which they
/// do.
void check_replicas(const UnitList& units, Strategy& strategy, comm::Communicator& group, comm::Communicator* tp_group,
                    const kernels::Place& place, int64_t step);

/// Hash of all weights, whole and without padding, one after the other in the order of their names, each followed by
/// its `moments` (of the optimizer, each [strategy.state_elements()]) where there are any and it is not frozen: equal
/// for every strategy, bucket size and cut that gives the same bits. Collective over the strategy's group and
/// `tp_group` (nullptr: one rank); holds one whole parameter at a time, from `place`.
uint64_t hash_weights(const UnitList& units, Strategy& strategy, const std::vector<Tensor>& moments,
                      comm::Communicator* tp_group, const kernels::Place& place);

}  // namespace sixfold::parallel
