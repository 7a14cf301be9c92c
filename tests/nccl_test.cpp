// The NCCL backend against a library that answers as NCCL does on host memory (nccl/stub_nccl.cpp).
#include <dlfcn.h>

#include "runtime/comm/nccl/nccl_api.h"
#include "runtime/comm/nccl/stream_queue.h"
#include "tests/collective_cases.h"
#include "tests/harness.h"
#include "tests/host_gpus.h"
#include "tests/refusal.h"

namespace sixfold::test {
namespace {

using comm::Buf;
using comm::Primitive;

/// The stub does all at once.
class HostQueue final : public comm::StreamQueue {
 public:
  void* handle() override { return nullptr; }
  void wait_for(void* stream) override { ++*static_cast<int*>(stream); }
  std::unique_ptr<comm::QueueMark> mark() override { return std::make_unique<Mark>(); }

 private:
  struct Mark final : comm::QueueMark {
    bool done() override { return true; }
    void order_before(void* stream) override { *static_cast<int*>(stream) += 10; }
  };
};

comm::WorldOptions on_stub() {
  const auto setup = std::make_shared<comm::NcclSetup>();
  setup->library = SIXFOLD_STUB_NCCL;
  setup->open_queue = [] { return std::make_unique<HostQueue>(); };
  comm::WorldOptions options;
  options.backend = comm::BackendKind::Nccl;
  options.nccl = setup;
  options.timeout_s = 20;
  return options;
}

/// Functions of the stub, which stays loaded.
template <typename F>
F* stub(const char* name) {
  static void* const handle = dlopen(SIXFOLD_STUB_NCCL, RTLD_NOW);
  return reinterpret_cast<F*>(dlsym(handle, name));
}
std::string take_calls() {
  std::string text(1 << 20, '\0');
  stub<void(char*, size_t)>("stub_nccl_take_calls")(text.data(), text.size());
  text.resize(text.find('\0'));
  return text;
}

class Nccl : public testing::TestWithParam<int> {};

TEST_P(Nccl, EveryPrimitiveDtypeAndOpIsExact) {
  run_ranks(
      GetParam(),
      [](comm::World& world) {
        for (Primitive primitive : comm::kCollectives) {
          for (size_t count : {size_t{0}, size_t{1}, size_t{257}}) {
            for (DType dtype : kAllDTypes) {
              for (ReduceOp op : kAllReduceOps) {
                if (!kernels::reduce_supported(dtype, op)) continue;
                if (!comm::reduces(primitive) && op != ReduceOp::Sum) continue;
                CollectiveCase c{primitive, comm::Algorithm::Auto, count, dtype, op, world.size() - 1};
                c.in_place = primitive != Primitive::AllToAll && dtype == DType::F32;
                EXPECT_EQ(run_case(world.group(), world.memory(), c), "");
              }
            }
          }
        }
      },
      on_stub());
}

INSTANTIATE_TEST_SUITE_P(Ranks, Nccl, testing::Values(1, 2, 3, 5));

Buf buf(std::vector<int32_t>& x) {
  return Buf(x.data(), x.size(), DType::I32);
}

// Ranks whose GPUs do not reach one another; those that share one are refused.
TEST(Nccl, ServesWhereOurOwnDoesNotReach) {
  const auto gpus = std::make_shared<HostGpus>();
  comm::WorldOptions options = on_stub();
  options.backend = comm::BackendKind::Nccl;
  options.gpus = gpus;
  expect_mentions(refusal([&] {
                    run_ranks(
                        2, [](comm::World& world) { world.group(); }, options);
                  }),
                  {"--comm nccl", "ranks 0 and 1 share a GPU", "allowed here: own"});
  gpus->place_of = [](int local_rank) {
    comm::GpuPlace place;
    place.gpu.bytes[0] = static_cast<uint8_t>(local_rank);
    return place;
  };
  for (const comm::BackendKind backend : {comm::BackendKind::Own, comm::BackendKind::Nccl}) {
    options.backend = backend;
    run_ranks(
        3,
        [](comm::World& world) {
          std::vector<int32_t> x = {1, world.rank()};
          world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum).wait();
          EXPECT_EQ(x, (std::vector<int32_t>{3, 3}));
          EXPECT_EQ(world.gpu_use()->mode, comm::GpuMode::Nccl);
          EXPECT_EQ(world.comm_table().rows().front().backend, "own");  // where the ranks are
          EXPECT_EQ(world.comm_table().rows().back().backend, "nccl");
        },
        options);
  }
}

TEST(Nccl, BlocksOfDifferentSizeMessagesAndSplit) {
  run_ranks(
      3,
      [](comm::World& world) {
        const int rank = world.rank();
        const auto r = static_cast<size_t>(rank);
        const std::vector<size_t> counts = {2, 0, 3};
        std::vector<int32_t> in(counts[r], rank), out(5, -1);
        world.group().all_gather(buf(in), buf(out), counts).wait();
        EXPECT_EQ(out, (std::vector<int32_t>{0, 0, 2, 2, 2}));

        std::vector<int32_t> full = {1, 2, 3, 4, 5}, part(counts[r]);
        world.group().reduce_scatter(buf(full), buf(part), counts, ReduceOp::Sum).wait();
        EXPECT_EQ(part, rank == 0 ? (std::vector<int32_t>{3, 6})
                                  : (rank == 1 ? std::vector<int32_t>{} : (std::vector<int32_t>{9, 12, 15})));

        std::vector<int32_t> sent, received(6),
            expected = {rank, 10 + rank, 10 + rank, 20 + rank, 20 + rank, 20 + rank};
        for (int to = 0; to < 3; ++to) sent.insert(sent.end(), r + 1, 10 * rank + to);
        world.group()
            .all_to_all(buf(sent), buf(received), std::vector<size_t>(3, r + 1), std::vector<size_t>{1, 2, 3})
            .wait();
        EXPECT_EQ(received, expected);

        std::vector<int32_t> to_next = {rank}, from_previous(1);
        const comm::P2p exchange[] = {{comm::P2p::Kind::Recv, buf(from_previous), (rank + 2) % 3, {}},
                                      {comm::P2p::Kind::Send, buf(to_next), (rank + 1) % 3, {}}};
        world.group().batch(exchange).wait();
        EXPECT_EQ(from_previous, std::vector<int32_t>{(rank + 2) % 3});

        comm::Communicator pair = world.group().split(rank == 1 ? 1 : 0, -rank);
        std::vector<int32_t> own = {rank}, all(static_cast<size_t>(pair.size()));
        pair.all_gather(buf(own), buf(all)).wait();
        EXPECT_EQ(all, rank == 1 ? std::vector<int32_t>{1} : (std::vector<int32_t>{2, 0}));
        world.group().barrier();
      },
      on_stub());
}

TEST(Nccl, CallsAreThoseOfTheLibrary) {
  take_calls();
  run_ranks(
      1,
      [](comm::World& world) {
        std::vector<int32_t> x(7, 3), y(7);
        world.group().all_reduce(buf(x), buf(y), ReduceOp::Sum).wait();
        world.group().all_to_all(buf(x), buf(y)).wait();
        EXPECT_EQ(y, x);
        world.group().barrier();
        for (const comm::CommRow& row : world.comm_table().rows()) {
          EXPECT_TRUE(row.backend != "nccl" || row.calls == 1) << row.tag;
        }
      },
      on_stub());
  // Three communicators: of collectives, and of two lanes. The barrier is no matter of NCCL's.
  EXPECT_EQ(take_calls(), "all_reduce 7\nsend 7\nrecv 7\ndestroy 0\ndestroy 0\ndestroy 0\n");
}

TEST(Nccl, StreamsGoBeforeAndAfter) {
  run_ranks(
      2,
      [](comm::World& world) {
        int stream = 0;
        std::vector<int32_t> x(4, 1);
        comm::Options options;
        options.stream = &stream;
        comm::Work work = world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum, options);
        EXPECT_EQ(stream, 1);
        work.wait();
        EXPECT_EQ(stream, 11);
      },
      on_stub());
}

TEST(Nccl, AsyncErrorsStopTheWorldAndAbort) {
  take_calls();
  std::string text;
  try {
    run_ranks(
        2,
        [](comm::World& world) {
          std::vector<int32_t> x(4, 1);
          world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum).wait();
          world.group().barrier();
          if (world.rank() == 0) stub<void(int)>("stub_nccl_set_async_error")(2);
          world.group().barrier();
          world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum).wait();
        },
        on_stub());
  } catch (const CommError& error) {
    text = error.what();
  }
  stub<void(int)>("stub_nccl_set_async_error")(0);
  expect_mentions(text, {"all_reduce #1", "NCCL says", "unhandled system error"});
  EXPECT_NE(take_calls().find("abort"), std::string::npos);
}

TEST(Nccl, WhatIsNotThereIsRefused) {
  const auto run_one = [](comm::WorldOptions options) {
    return refusal([&] {
      run_ranks(
          1, [](comm::World& world) { world.group(); }, options);
    });
  };
  comm::WorldOptions options = on_stub();
  const auto broken = std::make_shared<comm::NcclSetup>(*options.nccl);
  broken->library = "libno-such-nccl.so";
  options.nccl = broken;
  expect_mentions(run_one(options), {"--comm nccl", "libno-such-nccl.so", "own"});
  broken->library = "libc.so.6";
  expect_mentions(run_one(options), {"--comm nccl", "libc.so.6", "ncclGetUniqueId"});
  options.nccl = nullptr;
  expect_mentions(run_one(options), {"--comm nccl", "GPU"});
  run_ranks(
      1,
      [](comm::World& world) {
        std::vector<int32_t> x(4);
        comm::Options ring;
        ring.algorithm = comm::Algorithm::Ring;
        expect_mentions(refusal([&] { world.group().all_reduce(buf(x), buf(x), ReduceOp::Sum, ring); }),
                        {"ring", "--comm nccl", "auto"});
        expect_mentions(refusal([&] { world.group().all_to_all(buf(x), buf(x)); }), {"all_to_all", "in place"});
      },
      on_stub());
}

}  // namespace
}  // namespace sixfold::test
