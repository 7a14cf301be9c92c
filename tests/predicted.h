// What a rank of a group on one node sends, by the formulas.
#pragma once

#include "runtime/comm/observe/predict.h"

namespace sixfold::comm {

inline double predicted_sent_elements(Primitive primitive, Algorithm algorithm, int rank, int size, int root,
                                      size_t count) {
  Call call;
  call.primitive = primitive;
  call.rank = rank;
  call.size = size;
  call.root = root;
  call.count = count;
  return predicted_sent_elements(algorithm, call);
}

}  // namespace sixfold::comm
