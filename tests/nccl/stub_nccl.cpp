// A library that answers as NCCL does, for ranks that are threads, on host memory, and records what was called.
//
// Every call does its work at once, after all ranks have come: streams are ignored. A rank that never comes ends the
// process, so that no test hangs.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/reduce.h"

namespace {

using sixfold::DType;
using sixfold::ReduceOp;

struct UniqueId {
  char internal[128];
};

DType dtype_of(int code) {
  const std::map<int, DType> known = {{1, DType::U8},  {2, DType::I32}, {4, DType::I64},
                                      {6, DType::F16}, {7, DType::F32}, {9, DType::BF16}};
  return known.at(code);
}
ReduceOp op_of(int code) {
  constexpr ReduceOp kOps[] = {ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min, ReduceOp::Avg};
  return kOps[code];
}

/// What the ranks of one communicator share.
struct Shared {
  explicit Shared(int size) : inputs(static_cast<size_t>(size)) {}
  std::mutex mutex;
  std::condition_variable moved;
  int num_waiting = 0;
  long generation = 0;
  std::vector<const std::byte*> inputs;                                     // of the collective under way
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> boxes;  // by sender and receiver

  template <typename Condition>
  void await(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    if (moved.wait_for(lock, std::chrono::seconds(30), condition)) return;
    std::fprintf(stderr, "stub NCCL: a rank never came\n");
    std::abort();
  }
  void meet() {
    std::unique_lock lock(mutex);
    const long mine = generation;
    if (++num_waiting == static_cast<int>(inputs.size())) {
      num_waiting = 0;
      ++generation;
      moved.notify_all();
      return;
    }
    await(lock, [&] { return generation != mine; });
  }
};

struct Comm {
  std::shared_ptr<Shared> shared;
  int rank, size;
};

std::mutex registry_mutex;
std::map<std::string, std::weak_ptr<Shared>> registry;
std::string calls;
int next_id = 0, async_error = 0;
thread_local bool grouped = false;
thread_local std::vector<std::function<void()>> group, group_receives;

void record(const std::string& call) {
  const std::lock_guard lock(registry_mutex);
  calls += call + "\n";
}

int run(const std::string& name, size_t count, std::function<void()> action) {
  record(name + " " + std::to_string(count));
  if (grouped) {
    group.push_back(std::move(action));
  } else {
    action();
  }
  return 0;
}

/// All ranks have put down their input; `result` of it goes to `out` once nobody reads inputs any more.
void collective(Comm& comm, const void* in, void* out, const std::function<std::vector<std::byte>()>& result) {
  comm.shared->inputs[static_cast<size_t>(comm.rank)] = static_cast<const std::byte*>(in);
  comm.shared->meet();
  const std::vector<std::byte> bytes = out == nullptr ? std::vector<std::byte>() : result();
  comm.shared->meet();
  if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
}

/// Elements [begin, begin + count) of all inputs, reduced in rank order.
std::vector<std::byte> reduced(const Comm& comm, size_t begin, size_t count, int dtype_code, int op_code) {
  const DType dtype = dtype_of(dtype_code);
  const size_t bytes = sixfold::dtype_bytes(dtype);
  const std::byte* first = comm.shared->inputs[0] + begin * bytes;
  std::vector<std::byte> sum(first, first + count * bytes);
  for (int rank = 1; rank < comm.size; ++rank) {
    sixfold::kernels::FusedOperands operands;
    operands.received = comm.shared->inputs[static_cast<size_t>(rank)] + begin * bytes;
    operands.local = operands.dst = sum.data();
    const bool last = rank + 1 == comm.size && op_of(op_code) == ReduceOp::Avg;
    sixfold::kernels::fused_reduce(dtype, op_of(op_code), operands, count,
                                   last ? 1.0f / static_cast<float>(comm.size) : 1.0f);
  }
  return sum;
}

Comm& comm_of(void* comm) {
  return *static_cast<Comm*>(comm);
}
size_t bytes_of(size_t count, int dtype) {
  return count * sixfold::dtype_bytes(dtype_of(dtype));
}

}  // namespace

extern "C" {

int ncclGetUniqueId(UniqueId* id) {
  const std::lock_guard lock(registry_mutex);
  std::memset(id, 0, sizeof(*id));
  std::snprintf(id->internal, sizeof(id->internal), "stub-%d", next_id++);
  return 0;
}

int ncclCommInitRank(void** comm, int size, UniqueId id, int rank) {
  std::shared_ptr<Shared> shared;
  {
    const std::lock_guard lock(registry_mutex);
    std::weak_ptr<Shared>& known = registry[id.internal];
    shared = known.lock();
    if (!shared) known = shared = std::make_shared<Shared>(size);
  }
  shared->meet();
  *comm = new Comm{shared, rank, size};
  return 0;
}

int ncclCommDestroy(void* comm) {
  record("destroy 0");
  delete static_cast<Comm*>(comm);
  return 0;
}

int ncclCommAbort(void* comm) {
  record("abort 0");
  delete static_cast<Comm*>(comm);
  return 0;
}

int ncclCommGetAsyncError(void*, int* error) {
  const std::lock_guard lock(registry_mutex);
  *error = async_error;
  return 0;
}

const char* ncclGetErrorString(int) {
  return "unhandled system error (stub)";
}

int ncclGroupStart() {
  grouped = true;
  return 0;
}

/// Receives come last: all that ranks send to one another in a group is on its way by then.
int ncclGroupEnd() {
  grouped = false;
  for (auto* actions : {&group, &group_receives}) {
    for (const auto& action : *actions) action();
    actions->clear();
  }
  return 0;
}

int ncclBroadcast(const void* in, void* out, size_t count, int dtype, int root, void* comm, void*) {
  return run("broadcast", count, [=] {
    Comm& own = comm_of(comm);
    collective(own, in, out, [&] {
      const std::byte* from = own.shared->inputs[static_cast<size_t>(root)];
      return std::vector<std::byte>(from, from + bytes_of(count, dtype));
    });
  });
}

int ncclReduce(const void* in, void* out, size_t count, int dtype, int op, int root, void* comm, void*) {
  return run("reduce", count, [=] {
    Comm& own = comm_of(comm);
    collective(own, in, own.rank == root ? out : nullptr, [&] { return reduced(own, 0, count, dtype, op); });
  });
}

int ncclAllReduce(const void* in, void* out, size_t count, int dtype, int op, void* comm, void*) {
  return run("all_reduce", count, [=] {
    Comm& own = comm_of(comm);
    collective(own, in, out, [&] { return reduced(own, 0, count, dtype, op); });
  });
}

int ncclAllGather(const void* in, void* out, size_t count, int dtype, void* comm, void*) {
  return run("all_gather", count, [=] {
    Comm& own = comm_of(comm);
    collective(own, in, out, [&] {
      std::vector<std::byte> all;
      for (const std::byte* from : own.shared->inputs) all.insert(all.end(), from, from + bytes_of(count, dtype));
      return all;
    });
  });
}

int ncclReduceScatter(const void* in, void* out, size_t count, int dtype, int op, void* comm, void*) {
  return run("reduce_scatter", count, [=] {
    Comm& own = comm_of(comm);
    collective(own, in, out, [&] { return reduced(own, static_cast<size_t>(own.rank) * count, count, dtype, op); });
  });
}

int ncclSend(const void* in, size_t count, int dtype, int peer, void* comm, void*) {
  return run("send", count, [=] {
    Comm& own = comm_of(comm);
    const auto* from = static_cast<const std::byte*>(in);
    const std::lock_guard lock(own.shared->mutex);
    own.shared->boxes[{own.rank, peer}].emplace_back(from, from + bytes_of(count, dtype));
    own.shared->moved.notify_all();
  });
}

int ncclRecv(void* out, size_t count, int dtype, int peer, void* comm, void*) {
  const auto receive = [=] {
    Comm& own = comm_of(comm);
    std::unique_lock lock(own.shared->mutex);
    auto& box = own.shared->boxes[{peer, own.rank}];
    own.shared->await(lock, [&] { return !box.empty(); });
    if (box.front().size() != bytes_of(count, dtype)) std::abort();
    if (count > 0) std::memcpy(out, box.front().data(), box.front().size());
    box.pop_front();
  };
  if (!grouped) return run("recv", count, receive);
  record("recv " + std::to_string(count));
  group_receives.push_back(receive);
  return 0;
}

/// For tests: what was called since the last time, one call and its count a line.
void stub_nccl_take_calls(char* text, size_t capacity) {
  const std::lock_guard lock(registry_mutex);
  std::snprintf(text, capacity, "%s", calls.c_str());
  calls.clear();
}

/// For tests: what ncclCommGetAsyncError reports from now on.
void stub_nccl_set_async_error(int error) {
  const std::lock_guard lock(registry_mutex);
  async_error = error;
}
}
