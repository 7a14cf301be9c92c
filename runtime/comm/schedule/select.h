// select(): which algorithm runs, where the caller leaves the choice to us. Every rank of a group must get the same
// answer, so it depends on nothing but the operation and the group.
#pragma once

#include "runtime/comm/schedule/schedule.h"

namespace sixfold::comm {

/// `bytes` as operation_bytes() counts them. Only algorithms that exist for the primitive are returned.
/// deterministic: results must not depend on message size or chunking, which is what direct gives.
Algorithm select(Primitive primitive, size_t bytes, int size, bool deterministic);

}  // namespace sixfold::comm
