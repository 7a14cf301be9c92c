#include "tests/host_grid.h"

#include "runtime/comm/cuda/direct_all_reduce.h"

namespace sixfold::test {

std::shared_ptr<comm::GridWork> HostGrid::launch(const comm::GridCollective& c) {
  ++num_launches_;
  if (c.call.primitive == comm::Primitive::AllReduce && c.algorithm == comm::Algorithm::Direct) return direct(c);
  const comm::Lowered lowered = comm::lower(c.call, c.in_place, c.algorithm, machine_.shape(c.dtype));
  std::vector<LoweredMachine::Buffers> buffers;
  for (size_t rank = 0; rank < c.in.size(); ++rank) buffers.push_back({c.in[rank], c.out[rank]});
  const float scale = c.op == ReduceOp::Avg ? 1.0f / static_cast<float>(c.call.size) : 1.0f;
  const std::string stuck = machine_.run(lowered, c.dtype, c.op, buffers, scale);
  if (!stuck.empty()) throw CommError("stuck: " + stuck);
  auto done = std::make_shared<Done>();
  for (size_t rank = 0; rank < c.in.size(); ++rank) {
    done->sent.push_back(comm::sent_elements(lowered, static_cast<int>(rank)) * dtype_bytes(c.dtype));
  }
  return done;
}

/// The kernel written by hand, by two threads a rank at a time.
std::shared_ptr<comm::GridWork> HostGrid::direct(const comm::GridCollective& c) {
  comm::DirectArguments arguments;
  arguments.num_ranks = static_cast<uint32_t>(c.call.size);
  arguments.scale = c.op == ReduceOp::Avg ? 1.0f / static_cast<float>(c.call.size) : 1.0f;
  std::copy(c.in.begin(), c.in.end(), arguments.input);
  std::copy(c.out.begin(), c.out.end(), arguments.output);
  comm::set_parts(arguments, c.call.count, dtype_bytes(c.dtype));
  auto done = std::make_shared<Done>();
  std::vector<std::thread> threads;
  constexpr uint32_t kBlocks = 2;
  for (uint32_t rank = 0; rank < arguments.num_ranks; ++rank) {
    done->sent.push_back(comm::direct_sent_elements(arguments, rank) * dtype_bytes(c.dtype));
    for (uint32_t block = 0; block < kBlocks; ++block) {
      threads.emplace_back([&, rank, block] {
        std::atomic<bool> gave_up = false;
        HostPlatform platform(gave_up, {});
        dispatch(c.dtype, [&](auto element) {
          with_op(c.op, [&]<ReduceOp op>() {
            comm::direct_all_reduce<decltype(element), op>(platform, arguments, rank, block, kBlocks);
          });
        });
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  return done;
}

}  // namespace sixfold::test
