// The part of cuBLASLt that we call, loaded when the first queue is made: a program built with CUDA starts where no
// CUDA is installed. (Linked statically, its kernels for every GPU would be half a GB of each program.)
#pragma once

#include <cublasLt.h>

#include <memory>
#include <span>
#include <string>

namespace sixfold::kernels::cuda {

/// X(name) for every function, without its prefix.
#define SIXFOLD_CUBLASLT(X)       \
  X(Create)                       \
  X(Destroy)                      \
  X(GetStatusName)                \
  X(GetStatusString)              \
  X(MatmulDescCreate)             \
  X(MatmulDescDestroy)            \
  X(MatmulDescSetAttribute)       \
  X(MatrixLayoutCreate)           \
  X(MatrixLayoutDestroy)          \
  X(MatrixLayoutSetAttribute)     \
  X(MatmulPreferenceCreate)       \
  X(MatmulPreferenceDestroy)      \
  X(MatmulPreferenceSetAttribute) \
  X(MatmulAlgoGetHeuristic)       \
  X(Matmul)

/// Pointers to the functions of the library, which stays loaded as long as this lives. (A test puts its own in the
/// place of those that need a GPU.)
class CublasApi {
 public:
  /// Takes the first of `libraries`, names or paths as dlopen takes them, that there is. Throws ConfigError that says
  /// what is missing.
  static std::shared_ptr<CublasApi> load(std::span<const std::string> libraries);
  /// Of the major version that this is compiled for: where the loader looks, or where this build found the toolkit.
  static std::shared_ptr<CublasApi> load();
  ~CublasApi();
  CublasApi(const CublasApi&) = delete;
  CublasApi& operator=(const CublasApi&) = delete;

  /// Throws CommError with the library's words unless `status` is success. `what`: "cublasLtCreate".
  void check(cublasStatus_t status, const std::string& what) const;

#define SIXFOLD_MEMBER(name) decltype(&cublasLt##name) name = nullptr;
  SIXFOLD_CUBLASLT(SIXFOLD_MEMBER)
#undef SIXFOLD_MEMBER

 private:
  CublasApi() = default;
  void* handle_ = nullptr;
};

}  // namespace sixfold::kernels::cuda
