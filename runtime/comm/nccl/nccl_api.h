// The part of NCCL that we call, loaded when it is asked for: programs start, and build, without it.
//
// Declared here as NCCL 2.x has it in nccl.h (the ABI is stable within a major version).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/reduce.h"

namespace sixfold::comm {

struct NcclUniqueId {
  char internal[128];
};
using NcclComm = void*;
using NcclResult = int;  // 0: success
inline constexpr NcclResult kNcclInProgress = 7;

int nccl_dtype(DType dtype);
int nccl_op(ReduceOp op);

/// Function pointers into the library, which stays loaded as long as this lives. `stream`: a cudaStream_t.
class NcclApi {
 public:
  /// `library`: a name or path as dlopen takes it. Throws ConfigError where there is none, or where it lacks a
  /// function.
  static std::shared_ptr<const NcclApi> load(const std::string& library);
  ~NcclApi();
  NcclApi(const NcclApi&) = delete;
  NcclApi& operator=(const NcclApi&) = delete;

  /// Throws CommError with NCCL's words unless `result` is success.
  void check(NcclResult result, const std::string& what) const;

  NcclResult (*get_unique_id)(NcclUniqueId* id);
  NcclResult (*comm_init_rank)(NcclComm* comm, int num_ranks, NcclUniqueId id, int rank);
  NcclResult (*comm_destroy)(NcclComm comm);
  NcclResult (*comm_abort)(NcclComm comm);
  NcclResult (*comm_get_async_error)(NcclComm comm, NcclResult* error);
  const char* (*get_error_string)(NcclResult result);
  NcclResult (*group_start)();
  NcclResult (*group_end)();
  NcclResult (*broadcast)(const void* in, void* out, size_t count, int dtype, int root, NcclComm comm, void* stream);
  NcclResult (*reduce)(const void* in, void* out, size_t count, int dtype, int op, int root, NcclComm comm,
                       void* stream);
  NcclResult (*all_reduce)(const void* in, void* out, size_t count, int dtype, int op, NcclComm comm, void* stream);
  NcclResult (*all_gather)(const void* in, void* out, size_t count, int dtype, NcclComm comm, void* stream);
  NcclResult (*reduce_scatter)(const void* in, void* out, size_t count, int dtype, int op, NcclComm comm, void* stream);
  NcclResult (*send)(const void* in, size_t count, int dtype, int peer, NcclComm comm, void* stream);
  NcclResult (*recv)(void* out, size_t count, int dtype, int peer, NcclComm comm, void* stream);

 private:
  NcclApi() = default;
  void* handle_ = nullptr;
};

}  // namespace sixfold::comm
