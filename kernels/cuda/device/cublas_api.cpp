#include "kernels/cuda/device/cublas_api.h"

#include <dlfcn.h>

#include "runtime/core/error.h"

namespace sixfold::kernels::cuda {

namespace {

[[noreturn]] void refuse(const std::string& problem) {
  throw ConfigError("--device cuda: " + problem + " (allowed here: auto, cpu)");
}

template <typename F>
void find(void* handle, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(handle, name));
  if (function == nullptr) refuse("cuBLASLt has no " + std::string(name));
}

}  // namespace

std::shared_ptr<CublasApi> CublasApi::load(std::span<const std::string> libraries) {
  std::shared_ptr<CublasApi> api(new CublasApi());
  std::string problem;
  for (const std::string& library : libraries) {
    api->handle_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (api->handle_ != nullptr) break;
    problem += (problem.empty() ? "" : "; ") + std::string(dlerror());
  }
  if (api->handle_ == nullptr) refuse(problem);
#define SIXFOLD_FIND(name) find(api->handle_, "cublasLt" #name, api->name);
  SIXFOLD_CUBLASLT(SIXFOLD_FIND)
#undef SIXFOLD_FIND
  return api;
}

std::shared_ptr<CublasApi> CublasApi::load() {
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  const std::string libraries[] = {name, SIXFOLD_CUDA_LIBRARY_DIR "/" + name};
  return load(libraries);
}

CublasApi::~CublasApi() {
  if (handle_ != nullptr) dlclose(handle_);
}

void CublasApi::check(cublasStatus_t status, const std::string& what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw CommError(what + ": " + GetStatusName(status) + " (" + GetStatusString(status) + ")");
}

}  // namespace sixfold::kernels::cuda
