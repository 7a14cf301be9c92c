// How strategies and layers call a group: in order with the kernels that write and read the buffers.
#pragma once

#include <string>

#include "kernels/queue.h"
#include "runtime/comm/communicator.h"

namespace sixfold::parallel {

/// For a call whose buffers kernels of `context` have written, and will read after Work::wait().
inline comm::Options call_options(const kernels::Context& context, std::string tag) {
  comm::Options options;
  options.tag = std::move(tag);
  options.stream = context.queue == nullptr ? nullptr : context.queue->stream();
  return options;
}

}  // namespace sixfold::parallel
