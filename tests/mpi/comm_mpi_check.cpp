// Started by mpirun: the collective cases between processes, on our own backend or on MPI's (argument "own" or "mpi").
// "mismatch" and "throw" are ranks that disagree and a rank that fails. Prints "CHECKED n cases" on rank 0 and exits 0
// when every rank saw every case right.
#include <cstdio>

#include "runtime/core/log.h"
#include "tests/collective_product.h"

namespace sixfold::test {
namespace {

using comm::Algorithm;
using comm::Primitive;

struct Tally {
  int num_cases = 0, num_wrong = 0;
  void add(const std::string& problem) {
    ++num_cases;
    if (problem.empty()) return;
    ++num_wrong;
    log_error(problem);
  }
};

void check_collectives(comm::World& world, bool own, Tally& tally) {
  comm::Communicator& group = world.group();
  const size_t n = static_cast<size_t>(group.size());
  const std::vector<Algorithm> automatic = {Algorithm::Auto};
  for (Primitive primitive : comm::kCollectives) {
    for (Algorithm algorithm : own ? comm::algorithms_of(primitive) : automatic) {
      for (size_t count : {size_t{0}, size_t{1}, n + 1, size_t{1009}, size_t{100003}}) {
        for (DType dtype : {DType::F32, DType::BF16, DType::I64}) {
          const int root = static_cast<int>(count) % group.size();
          const ReduceOp op = dtype == DType::BF16  ? ReduceOp::Avg
                              : dtype == DType::F32 ? ReduceOp::Sum
                                                    : ReduceOp::Max;
          tally.add(run_case(group, world.memory(), {primitive, algorithm, count, dtype, op, root, false, 1}));
          tally.add(run_case(group, world.memory(), {primitive, algorithm, count, dtype, op, root, true, 0}));
        }
      }
    }
  }
}

/// Every two of what a collective may be asked for meet, as far as it applies to this World.
void check_product(comm::World& world, bool own, Tally& tally) {
  if (!own) return;
  for (const auto& [unused, cases] : CollectiveProduct({world.size()}).covering()) {
    for (const CollectiveCase& c : cases) {
      if (!comm::builder_applies(c.primitive, c.algorithm, &world.topology())) continue;
      tally.add(run_case(world.group(), world.memory(), c));
    }
  }
}

/// `category` says whether the buffers are such as peers reach.
void check_point_to_point(comm::World& world, Category category, Tally& tally) {
  comm::Communicator& group = world.group();
  const int next = (group.rank() + 1) % group.size(), previous = (group.rank() + group.size() - 1) % group.size();
  for (size_t count : {size_t{0}, size_t{5}, size_t{200000}}) {
    const Shape shape = {static_cast<int64_t>(count)};
    const Tensor out = Tensor::empty(shape, DType::F32, world.memory(), category);
    const Tensor in = Tensor::zeros(shape, DType::F32, world.memory(), category);
    std::fill_n(out.data<float>(), count, static_cast<float>(group.rank() + 1));
    const comm::P2p transfers[2] = {{comm::P2p::Kind::Send, out, next, {}}, {comm::P2p::Kind::Recv, in, previous, {}}};
    group.batch(transfers).wait();
    const bool right = std::all_of(in.data<float>(), in.data<float>() + count,
                                   [&](float value) { return value == static_cast<float>(previous + 1); });
    tally.add(right ? "" : "exchange of " + std::to_string(count));
  }
}

void check_split(comm::World& world, Tally& tally) {
  for (int round = 0; round < 10; ++round) {
    comm::Communicator half = world.group().split(world.rank() % 2, -world.rank());
    float sum = static_cast<float>(world.rank()), wanted = 0;
    for (int r = world.rank() % 2; r < world.size(); r += 2) wanted += static_cast<float>(r);
    half.all_reduce({&sum, 1, DType::F32}, {&sum, 1, DType::F32}, ReduceOp::Sum).wait();
    tally.add(sum == wanted ? "" : "sum over a split group");
  }
}

void disagree(comm::World& world) {
  std::vector<float> x(world.rank() == 2 ? 409598 : 409600);
  const comm::Buf buf(x.data(), x.size(), DType::F32);
  world.group().all_reduce(buf, buf, ReduceOp::Sum).wait();
  world.group().barrier();
}

void fail_on_one_rank(comm::World& world) {
  world.group().barrier();
  if (world.rank() == 1) throw std::runtime_error("disk full");
  world.group().barrier();
}

}  // namespace
}  // namespace sixfold::test

int main(int argc, char** argv) {
  using namespace sixfold;
  const std::string what = argc < 2 ? "own" : argv[1];
  comm::WorldOptions options;
  options.backend = what == "mpi" ? comm::BackendKind::Mpi : comm::BackendKind::Own;
  options.timeout_s = 30;
  bool right = true;
  comm::run_world(options, [&](comm::World& world) {
    if (what == "mismatch") return test::disagree(world);
    if (what == "throw") return test::fail_on_one_rank(world);
    test::Tally tally;
    test::check_collectives(world, what == "own", tally);
    test::check_product(world, what == "own", tally);
    test::check_point_to_point(world, Category::Other, tally);
    test::check_point_to_point(world, Category::Communication, tally);
    test::check_split(world, tally);
    int32_t wrong = tally.num_wrong;
    world.group().all_reduce({&wrong, 1, DType::I32}, {&wrong, 1, DType::I32}, ReduceOp::Sum).wait();
    if (world.rank() == 0) std::printf("CHECKED %d cases, %d wrong over all ranks\n", tally.num_cases, wrong);
    right = wrong == 0;
  });
  return right ? 0 : 1;
}
