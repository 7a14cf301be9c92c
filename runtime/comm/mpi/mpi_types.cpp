#include "runtime/comm/mpi/mpi_types.h"

#include <limits>
#include <map>
#include <utility>

namespace sixfold::comm {

namespace {

template <typename T, ReduceOp op>
void reduce_function(void* in, void* inout, int* count, MPI_Datatype*) {
  kernels::FusedOperands operands;
  operands.received = in;
  operands.local = operands.dst = inout;
  kernels::fused_reduce(DTypeOf<T>::value, op, operands, static_cast<size_t>(*count), 1.0f);
}

template <typename T>
MPI_User_function* function_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return reduce_function<T, ReduceOp::Sum>;
    case ReduceOp::Min:
      return reduce_function<T, ReduceOp::Min>;
    case ReduceOp::Max:
      return reduce_function<T, ReduceOp::Max>;
    case ReduceOp::Prod:
      return reduce_function<T, ReduceOp::Prod>;
  }
  return nullptr;
}

}  // namespace

void check_mpi(int code, const std::string& what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommError(what + ": " + std::string(text, static_cast<size_t>(length)));
}

MPI_Datatype mpi_datatype(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return MPI_FLOAT;
    case DType::BF16:
    case DType::F16:
      return MPI_UINT16_T;
    case DType::I32:
      return MPI_INT32_T;
    case DType::I64:
      return MPI_INT64_T;
    case DType::U8:
      return MPI_UINT8_T;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op mpi_op(DType dtype, ReduceOp op) {
  const bool native = dtype != DType::BF16 && dtype != DType::F16;
  if (native && (op == ReduceOp::Sum || op == ReduceOp::Avg)) return MPI_SUM;
  if (native && op == ReduceOp::Prod) return MPI_PROD;
  // MPI calls come from one thread at a time, so this needs no lock.
  static std::map<std::pair<DType, ReduceOp>, MPI_Op> made;
  const auto [found, fresh] = made.try_emplace({dtype, op}, MPI_OP_NULL);
  if (fresh) {
    MPI_User_function* function = dispatch(dtype, [op](auto element) { return function_of<decltype(element)>(op); });
    check_mpi(MPI_Op_create(function, 1, &found->second), "MPI_Op_create");
  }
  return found->second;
}

int mpi_count(size_t count) {
  if (count > static_cast<size_t>(std::numeric_limits<int>::max())) {
    throw ConfigError("--comm mpi: " + std::to_string(count) +
                      " elements are more than an MPI count holds (allowed: up to 2147483647)");
  }
  return static_cast<int>(count);
}

}  // namespace sixfold::comm
