#include "runtime/comm/host/host_barrier.h"

namespace sixfold::comm {

void host_barrier(OwnGroup& group, std::string_view tag) {
  uint8_t token = 0;
  Collective barrier;
  barrier.in = barrier.out = &token;
  barrier.count = 1;
  barrier.dtype = DType::U8;
  barrier.op = ReduceOp::Max;
  barrier.in_place = true;
  barrier.algorithm = Algorithm::Direct;
  barrier.tag = tag;
  group.context().engine.wait(*group.start(barrier));
}

}  // namespace sixfold::comm
