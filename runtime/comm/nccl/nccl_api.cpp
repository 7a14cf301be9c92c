#include "runtime/comm/nccl/nccl_api.h"

#include <dlfcn.h>

#include "runtime/core/error.h"

namespace sixfold::comm {

int nccl_dtype(DType dtype) {
  switch (dtype) {
    case DType::U8:
      return 1;
    case DType::I32:
      return 2;
    case DType::I64:
      return 4;
    case DType::F16:
      return 6;
    case DType::F32:
      return 7;
    case DType::BF16:
      break;
  }
  return 9;
}

int nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return 0;
    case ReduceOp::Prod:
      return 1;
    case ReduceOp::Max:
      return 2;
    case ReduceOp::Min:
      return 3;
    case ReduceOp::Avg:
      break;
  }
  return 4;
}

namespace {

template <typename F>
void find(void* handle, const std::string& library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(handle, name));
  if (function == nullptr)
    throw ConfigError("--comm nccl: " + library + " has no " + name + " (needed: NCCL 2.7 or later)");
}

}  // namespace

std::shared_ptr<const NcclApi> NcclApi::load(const std::string& library) {
  std::shared_ptr<NcclApi> api(new NcclApi());
  api->handle_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (api->handle_ == nullptr) {
    throw ConfigError("--comm nccl: " + std::string(dlerror()) + " (allowed here: own)");
  }
  void* handle = api->handle_;
  find(handle, library, "ncclGetUniqueId", api->get_unique_id);
  find(handle, library, "ncclCommInitRank", api->comm_init_rank);
  find(handle, library, "ncclCommDestroy", api->comm_destroy);
  find(handle, library, "ncclCommAbort", api->comm_abort);
  find(handle, library, "ncclCommGetAsyncError", api->comm_get_async_error);
  find(handle, library, "ncclGetErrorString", api->get_error_string);
  find(handle, library, "ncclGroupStart", api->group_start);
  find(handle, library, "ncclGroupEnd", api->group_end);
  find(handle, library, "ncclBroadcast", api->broadcast);
  find(handle, library, "ncclReduce", api->reduce);
  find(handle, library, "ncclAllReduce", api->all_reduce);
  find(handle, library, "ncclAllGather", api->all_gather);
  find(handle, library, "ncclReduceScatter", api->reduce_scatter);
  find(handle, library, "ncclSend", api->send);
  find(handle, library, "ncclRecv", api->recv);
  return api;
}

NcclApi::~NcclApi() {
  if (handle_ != nullptr) dlclose(handle_);
}

void NcclApi::check(NcclResult result, const std::string& what) const {
  if (result != 0) throw CommError(what + ": NCCL says " + get_error_string(result));
}

}  // namespace sixfold::comm
