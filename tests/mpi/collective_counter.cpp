// A library for LD_PRELOAD: counts, through MPI's profiling interface, the collectives and the messages that a program
// starts between MPI_Pcontrol(1), where our worlds end their start-up, and MPI_Pcontrol(0). Prints "COLLECTIVES n" and
// "MESSAGES n" at MPI_Finalize.
#include <mpi.h>

#include <cstdio>

namespace {
bool counting = false;
long num_collectives = 0, num_messages = 0;
int counted(int code) {
  num_collectives += counting;
  return code;
}
}  // namespace

#define SIXFOLD_COUNT(name, parameters, arguments) \
  int MPI_##name parameters {                      \
    return counted(PMPI_##name arguments);         \
  }

extern "C" {

int MPI_Pcontrol(const int level, ...) {
  counting = level > 0;
  return MPI_SUCCESS;
}

int MPI_Finalize() {
  std::fprintf(stderr, "COLLECTIVES %ld\nMESSAGES %ld\n", num_collectives, num_messages);
  return PMPI_Finalize();
}

int MPI_Isend(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  num_messages += counting;
  return PMPI_Isend(buffer, count, type, to, tag, comm, request);
}

SIXFOLD_COUNT(Barrier, (MPI_Comm comm), (comm))
SIXFOLD_COUNT(Ibarrier, (MPI_Comm comm, MPI_Request* request), (comm, request))
SIXFOLD_COUNT(Bcast, (void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm),
              (buffer, count, type, root, comm))
SIXFOLD_COUNT(Ibcast, (void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request),
              (buffer, count, type, root, comm, request))
SIXFOLD_COUNT(Reduce, (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm),
              (in, out, count, type, op, root, comm))
SIXFOLD_COUNT(Ireduce,
              (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
               MPI_Request* request),
              (in, out, count, type, op, root, comm, request))
SIXFOLD_COUNT(Allreduce, (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
              (in, out, count, type, op, comm))
SIXFOLD_COUNT(Iallreduce,
              (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request* request),
              (in, out, count, type, op, comm, request))
SIXFOLD_COUNT(Allgather,
              (const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
               MPI_Comm comm),
              (in, in_count, in_type, out, out_count, out_type, comm))
SIXFOLD_COUNT(Iallgather,
              (const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
               MPI_Comm comm, MPI_Request* request),
              (in, in_count, in_type, out, out_count, out_type, comm, request))
SIXFOLD_COUNT(Reduce_scatter_block, (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
              (in, out, count, type, op, comm))
SIXFOLD_COUNT(Ireduce_scatter_block,
              (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request* request),
              (in, out, count, type, op, comm, request))
SIXFOLD_COUNT(Alltoall,
              (const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
               MPI_Comm comm),
              (in, in_count, in_type, out, out_count, out_type, comm))
SIXFOLD_COUNT(Ialltoall,
              (const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
               MPI_Comm comm, MPI_Request* request),
              (in, in_count, in_type, out, out_count, out_type, comm, request))
SIXFOLD_COUNT(Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm* part), (comm, color, key, part))
SIXFOLD_COUNT(Comm_dup, (MPI_Comm comm, MPI_Comm* copy), (comm, copy))

}  // extern "C"
