// What the programs that time a GPU share.
#pragma once

#include <cstdio>
#include <exception>

#include "runtime/core/cuda/cuda_error.h"
#include "runtime/core/cuda/stream.h"

namespace sixfold::test {

/// Seconds of one run(), which issues work to the stream: of `repeats` in a row, after `warmups` that are not counted.
template <typename Run>
double seconds_of(cudaStream_t stream, int warmups, int repeats, const Run& run) {
  for (int i = 0; i < warmups; ++i) run();
  const cuda::Event begin(true), end(true);
  begin.record(stream);
  for (int i = 0; i < repeats; ++i) run();
  end.record(stream);
  cuda::check_cuda(cudaEventSynchronize(end.get()), "work that is timed");
  return cuda::elapsed_seconds(begin, end) / repeats;
}

/// The exit status of a program: what `run` returns, or 1 where it throws, with the reason on standard error.
inline int exit_status(int (*run)()) {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace sixfold::test
