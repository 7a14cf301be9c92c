// CublasProducts: matrix products by cuBLASLt, each with an algorithm that is chosen at its first use.
#pragma once

#include <map>
#include <memory>

#include "kernels/cuda/device/cublas_api.h"
#include "kernels/cuda/lt_problem.h"

namespace sixfold::kernels::cuda {

/// One a queue. Algorithms are those that the library's heuristics put first, never timed, so every run has the same.
class CublasProducts {
 public:
  /// For the GPU that is current. `workspace`: of the GPU, the caller's. Throws CommError.
  CublasProducts(std::shared_ptr<const CublasApi> api, void* workspace, size_t workspace_bytes);
  ~CublasProducts();
  CublasProducts(const CublasProducts&) = delete;
  CublasProducts& operator=(const CublasProducts&) = delete;

  /// As multiply() (gemm.h), on a stream. Calls must be on one stream, since they share the workspace.
  bool multiply(const Gemm& gemm, cudaStream_t stream);

 private:
  struct Plan;
  Plan& plan(const LtProblem& problem, const Gemm& gemm);
  std::unique_ptr<Plan> make_plan(const LtProblem& problem, const Gemm& gemm) const;
  void set_pointers(const Plan& plan, const Gemm& gemm) const;

  std::shared_ptr<const CublasApi> api_;
  void* workspace_;
  size_t workspace_bytes_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<LtProblem, std::unique_ptr<Plan>> plans_;
};

}  // namespace sixfold::kernels::cuda
