// A ring all-reduce written by hand for ranks of one grid: what the interpreter of instruction lists is measured
// against. f32 sums, no lists, no tables; the loops that move a piece, the slots and the flags are the interpreter's.
#pragma once

#include "runtime/comm/cuda/direct_all_reduce.h"
#include "runtime/comm/cuda/interpreter.h"

namespace sixfold::test {

inline constexpr uint32_t kRingSlots = 8;

struct RingArguments {
  const float* input[comm::kMaxRanksPerGrid] = {};
  float* output[comm::kMaxRanksPerGrid] = {};
  float* slots = nullptr;     // kRingSlots of slot_elements for each rank and block: of the link to the next rank
  uint64_t* flags = nullptr;  // two lines for each rank and block: tail and head of that link
  uint64_t count = 0;
  uint64_t first_message = 0;  // that each link has carried before
  uint32_t num_ranks = 0, slot_elements = 0;
};

/// Passes of one slot for each rank and block.
SIXFOLD_HD inline uint64_t ring_passes(uint64_t count, uint32_t num_ranks, uint32_t num_blocks,
                                       uint32_t slot_elements) {
  const uint64_t per_pass = uint64_t{num_ranks} * num_blocks * slot_elements;
  return (count + per_pass - 1) / per_pass;
}

/// Messages that each link carries in one launch.
SIXFOLD_HD inline uint64_t ring_messages(const RingArguments& a, uint32_t num_blocks) {
  return ring_passes(a.count, a.num_ranks, num_blocks, a.slot_elements) * 2 * (a.num_ranks - 1);
}

/// Block `block` of `num_blocks` of `rank`, by all its threads; at least two ranks. False when it gave up waiting.
template <typename Platform>
SIXFOLD_DEVICE bool ring_by_hand(Platform& platform, const RingArguments& a, uint32_t rank, uint32_t block,
                                 uint32_t num_blocks) {
  const uint32_t n = a.num_ranks, before = (rank + n - 1) % n;
  const uint64_t link_to = uint64_t{rank} * num_blocks + block, link_from = uint64_t{before} * num_blocks + block;
  const auto flag = [&](uint64_t link, uint32_t line) { return a.flags + (2 * link + line) * comm::kFlagStride; };
  const auto slot = [&](uint64_t link, uint64_t message) {
    return a.slots + (link * kRingSlots + message % kRingSlots) * a.slot_elements;
  };
  const uint64_t num_passes = ring_passes(a.count, n, num_blocks, a.slot_elements);
  uint64_t sent = a.first_message, received = a.first_message;
  for (uint64_t pass = 0; pass < num_passes; ++pass) {
    for (uint32_t step = 0; step < 2 * n - 1; ++step) {
      // Chunks go round twice: first summed up, then as the result.
      const bool receives = step > 0, sends = step < 2 * n - 2, reduces = receives && step < n;
      const uint32_t chunk = (rank + 2 * n - step) % n;
      const auto ready = [&] {
        if (receives && !platform.await(flag(link_from, 0), received + 1, {comm::WaitKind::Message})) return false;
        if (!sends || sent < kRingSlots) return true;
        return platform.await(flag(link_to, 1), sent + 1 - kRingSlots, {comm::WaitKind::Slot});
      };
      if (!platform.agree(platform.thread() != 0 || ready())) return false;
      const uint64_t begin = ((pass * n + chunk) * num_blocks + block) * a.slot_elements;
      const uint64_t left = begin < a.count ? a.count - begin : 0;
      comm::PieceOperands<float> o;
      if (receives) o.received = slot(link_from, received);
      if (sends) o.send = slot(link_to, sent);
      if (!receives || reduces) o.local = a.input[rank] + begin;
      if (step + 1 >= n) o.dst = a.output[rank] + begin;
      comm::move_piece<float, ReduceOp::Sum>(
          platform, o, left < a.slot_elements ? static_cast<uint32_t>(left) : a.slot_elements, 1.0f);
      platform.sync();
      sent += sends ? 1 : 0;
      received += receives ? 1 : 0;
      if (platform.thread() != 0) continue;
      if (sends) platform.raise(flag(link_to, 0), sent);
      if (receives) platform.raise(flag(link_from, 1), received);
    }
  }
  return true;
}

}  // namespace sixfold::test
