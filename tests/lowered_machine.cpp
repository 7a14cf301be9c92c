#include "tests/lowered_machine.h"

#include <deque>

namespace sixfold::test {

namespace {

/// Where blocks of `num_ranks` ranks got stuck.
std::string describe(size_t num_ranks, const std::deque<HostPlatform>& platforms) {
  std::string text;
  const size_t per_rank = platforms.size() / num_ranks;
  for (size_t i = 0; i < platforms.size(); ++i) {
    const comm::WaitPlace& at = platforms[i].stuck();
    if (at.kind == comm::WaitKind::None) continue;
    text += "rank " + std::to_string(i / per_rank) + " channel " + std::to_string(at.channel) + " split " +
            std::to_string(at.split) + " pass " + std::to_string(at.pass) + " instruction " +
            std::to_string(at.instruction) + "; ";
  }
  return text;
}

}  // namespace

std::string LoweredMachine::run(const comm::Lowered& lowered, DType dtype, ReduceOp op,
                                const std::vector<Buffers>& buffers, float scale, double deadline_s) {
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(deadline_s));
  std::deque<RankState> ranks;
  for (size_t r = 0; r < lowered.ranks.size(); ++r) {
    ranks.emplace_back(*this, lowered, r, buffers[r], scale, dtype_bytes(dtype));
  }
  std::atomic<bool> gave_up = false;
  std::deque<HostPlatform> platforms;
  std::vector<std::thread> threads;
  for (RankState& rank : ranks) {
    for (uint32_t channel = 0; channel < rank.program.num_channels; ++channel) {
      for (uint32_t split = 0; split < rank.program.num_splits; ++split) {
        HostPlatform& platform = platforms.emplace_back(gave_up, deadline);
        threads.emplace_back([&platform, &rank, dtype, op, channel, split] {
          dispatch(dtype, [&](auto element) {
            with_op(op, [&]<ReduceOp combine>() {
              comm::ProgramRun<decltype(element), combine, HostPlatform>(platform, rank.program, channel, split).run();
            });
          });
        });
      }
    }
  }
  for (std::thread& thread : threads) thread.join();
  return gave_up ? describe(ranks.size(), platforms) : "";
}

std::string run_lowered(LoweredMachine& machine, int size, const CollectiveCase& c, const comm::Topology* topology) {
  comm::Call call;
  call.primitive = c.primitive;
  call.size = size;
  call.root = c.root;
  call.count = c.count;
  call.topology = topology;
  const bool in_place = c.in_place || c.primitive == comm::Primitive::Broadcast;
  const std::vector<bool> in_places(static_cast<size_t>(size), in_place);
  const comm::Lowered lowered = comm::lower(call, in_places, c.algorithm, machine.shape(c.dtype));
  const float scale = c.op == ReduceOp::Avg ? 1.0f / static_cast<float>(size) : 1.0f;
  Memory memory;
  return dispatch(c.dtype, [&](auto element) -> std::string {
    std::vector<CaseBuffers<decltype(element)>> ranks;
    std::vector<LoweredMachine::Buffers> buffers;
    for (int rank = 0; rank < size; ++rank) {
      ranks.emplace_back(memory, c, rank, size);
      buffers.push_back({ranks.back().in, ranks.back().out});
    }
    const std::string stuck = machine.run(lowered, c.dtype, c.op, buffers, scale);
    if (!stuck.empty()) return to_string(c) + ": stuck: " + stuck;
    for (int rank = 0; rank < size; ++rank) {
      const std::string wrong = ranks[static_cast<size_t>(rank)].check(c, rank, size);
      if (!wrong.empty()) return wrong;
    }
    return "";
  });
}

}  // namespace sixfold::test
