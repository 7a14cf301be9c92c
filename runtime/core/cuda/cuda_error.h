// Errors of the CUDA runtime as ours.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace sixfold::cuda {

/// Throws CommError that says what failed and how CUDA calls it, unless `code` is cudaSuccess. `what`: "cudaMemcpyAsync
/// of the program tables".
void check_cuda(cudaError_t code, const std::string& what);

}  // namespace sixfold::cuda
