// Our dtypes and reductions in MPI's terms.
#pragma once

#include <mpi.h>

#include <string>

#include "kernels/reduce.h"

namespace sixfold::comm {

/// Throws CommError with MPI's own text when `code` is not MPI_SUCCESS.
void check_mpi(int code, const std::string& what);

/// Valid until MPI_Finalize. 16-bit floats travel as MPI_UINT16_T.
MPI_Datatype mpi_datatype(DType dtype);
/// Sum for Avg: MPI has no average, the caller scales. Operations of ours where MPI has none for the dtype, or leaves
/// NaN open (min, max).
MPI_Op mpi_op(DType dtype, ReduceOp op);

/// MPI 3 counts are int. Throws ConfigError beyond.
int mpi_count(size_t count);

}  // namespace sixfold::comm
