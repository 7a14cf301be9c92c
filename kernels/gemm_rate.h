// The yardstick of training speed: what share of the rate that plain matrix products reach does a step reach?
#pragma once

#include "kernels/kernels.h"

namespace sixfold::kernels {

/// GFLOP/s (10^9 additions and multiplications a second) of matmul() in the context's dtype with context.num_threads
/// threads: the best of the calls on [1024, 768] x [768, 768] that fit into a quarter of a second (at least one), on a
/// GPU of eights of [8192, 8192] x [8192, 8192]. Takes 9 MB of context.memory meanwhile, on a GPU up to 0.8 GB. Called
/// by the trainer once, before the first step, on all ranks at the same time, so that they share the machine as they do
/// in training.
double measure_gemm_rate(Context& context);

}  // namespace sixfold::kernels
