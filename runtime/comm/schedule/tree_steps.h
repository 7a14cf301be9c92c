// The way up a tree and the way down, whatever its shape. Only builders include this.
#pragma once

#include "runtime/comm/schedule/builders.h"

namespace sixfold::comm {

/// Where this rank stands in a tree of the call's ranks.
struct TreePlace {
  int parent = kNoPeer;  // none at the top
  std::vector<int> children;
};

/// Adds what the children send to `input`, in their order, and sends the sum to the parent; at the top the last step
/// leaves the result, finished, in `result`. A rank with more than one child uses Accum from its start. A group of two
/// and more ranks.
void reduce_up(const TreePlace& place, const Slice& input, const Slice& result, int channel, Schedule& schedule);

/// Sends what the top has in `source` down into everybody's `output`; `top_copy` is where the top keeps a copy, if
/// anywhere. The top waits for step `after` of another channel, if any.
void broadcast_down(const TreePlace& place, const Slice& source, const Slice& output, const Slice& top_copy,
                    int channel, int after, Schedule& schedule);

}  // namespace sixfold::comm
