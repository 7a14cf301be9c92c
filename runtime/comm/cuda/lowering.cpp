#include "runtime/comm/cuda/lowering.h"

#include <algorithm>
#include <limits>

#include "runtime/comm/cuda/chunk_cuts.h"
#include "runtime/comm/cuda/lowered_check.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

BlockShape BlockShape::of(int num_splits, int num_slots, size_t slot_bytes, size_t element_bytes) {
  constexpr size_t kGranuleBytes = 16;
  SIXFOLD_CHECK(slot_bytes > 0 && slot_bytes % kGranuleBytes == 0, "slots hold whole granules");
  SIXFOLD_CHECK_LE(2, num_slots, "slots of a link");
  return {num_splits, num_slots, static_cast<uint32_t>(slot_bytes / element_bytes),
          static_cast<uint32_t>(kGranuleBytes / element_bytes)};
}

size_t BlockShape::step_capacity() const {
  return static_cast<size_t>(num_splits) * static_cast<size_t>(num_slots - 1) * slot_elements;
}

size_t Lowered::stored_pass(size_t pass) const {
  if (!alike) return pass;
  return pass + 1 == num_passes ? ranks.front().passes.size() - 1 : 0;
}

namespace {

/// Writes the instructions of one rank in one pass.
class RankLowering {
 public:
  RankLowering(const Schedule& schedule, const ChunkCuts& cuts, int rank, LoweredRank& lowered)
      : schedule_(schedule), lowered_(lowered), pass_(lowered.passes.emplace_back()) {
    for (Buffer buffer : {Buffer::Input, Buffer::Output, Buffer::Scratch, Buffer::Accum}) {
      const std::vector<uint64_t>& own = cuts.of(rank, buffer);
      first_cut_.push_back(pass_.cuts.size());
      num_cuts_.push_back(own.size());
      base_.push_back(base_of(buffer));
      for (uint64_t cut : own) pass_.cuts.push_back(cut + base_.back());
    }
    SIXFOLD_CHECK_LE(pass_.cuts.size(), size_t{std::numeric_limits<uint16_t>::max()}, "chunks of a rank in one pass");
    pass_.lists.resize(lowered.awaits.size());
    position_.resize(schedule.steps.size(), kNoInstruction);
    lowered.scratch_count = base_[static_cast<size_t>(Buffer::Scratch)] + schedule.scratch_count;
    lowered.accum_count = base_[static_cast<size_t>(Buffer::Accum)] + schedule.accum_count;
  }

  void run() {
    for (size_t i = 0; i < schedule_.steps.size(); ++i) {
      const Step& step = schedule_.steps[i];
      if (step.count() == 0) continue;
      std::vector<Instruction>& list = pass_.lists[static_cast<size_t>(step.channel)];
      position_[i] = static_cast<uint32_t>(list.size());
      list.push_back(instruction_of(step));
    }
    // Once all positions are known: a step may await one that comes later in the list of steps.
    for (size_t i = 0; i < schedule_.steps.size(); ++i) {
      if (position_[i] != kNoInstruction && schedule_.steps[i].after != kNoStep) await(i);
    }
  }

 private:
  /// Where this pass has its part of the buffer: behind those of the passes before, at a whole granule of any type.
  size_t base_of(Buffer buffer) const {
    constexpr size_t kAligned = 16;
    const bool of_a_pass = buffer == Buffer::Scratch || buffer == Buffer::Accum;
    const size_t taken = buffer == Buffer::Scratch ? lowered_.scratch_count : lowered_.accum_count;
    return of_a_pass ? (taken + kAligned - 1) / kAligned * kAligned : 0;
  }

  Instruction instruction_of(const Step& step) {
    Instruction instruction;
    const auto channel = static_cast<size_t>(step.channel);
    if (step.recv_peer != kNoPeer) {
      instruction.op |= kReceives;
      instruction.recv = connection(lowered_.recv_peers[channel], step.recv_peer);
    }
    if (step.send_peer != kNoPeer) {
      instruction.op |= kSends;
      instruction.send = connection(lowered_.send_peers[channel], step.send_peer);
    }
    if (step.src.used) {
      instruction.op |= kReadsSource;
      instruction.buffers |= static_cast<uint8_t>(step.src.buffer);
      instruction.source = chunks(step.src, instruction.num_chunks);
    }
    if (step.dst.used) {
      instruction.op |= kStores;
      instruction.buffers |= static_cast<uint8_t>(static_cast<unsigned>(step.dst.buffer) << 4);
      const uint32_t of_source = instruction.num_chunks;
      instruction.destination = chunks(step.dst, instruction.num_chunks);
      if (step.src.used) SIXFOLD_CHECK_EQ(of_source, instruction.num_chunks, "source and destination are cut alike");
    }
    if (step.reduce) instruction.op |= kReduces;
    if (step.finish) instruction.op |= kFinishes;
    return instruction;
  }

  void await(size_t step) {
    const auto awaited = static_cast<size_t>(schedule_.steps[step].after);
    const int channel = schedule_.steps[step].channel, other = schedule_.steps[awaited].channel;
    int& awaits = lowered_.awaits[static_cast<size_t>(channel)];
    SIXFOLD_CHECK(awaits == -1 || awaits == other, "a channel awaits one other");
    awaits = other;
    Instruction& waiting = pass_.lists[static_cast<size_t>(channel)][position_[step]];
    Instruction& published = pass_.lists[static_cast<size_t>(other)][position_[awaited]];
    SIXFOLD_CHECK_EQ(waiting.num_chunks, published.num_chunks, "slices that wait for one another are cut alike");
    waiting.awaited = position_[awaited];
    published.op |= kPublishes;
  }

  uint16_t chunks(const Slice& slice, uint32_t& num_chunks) const {
    SIXFOLD_CHECK_LE(slice.count, kMaxChunk, "elements of a step");
    const auto buffer = static_cast<size_t>(slice.buffer);
    const auto begin = pass_.cuts.begin() + static_cast<std::ptrdiff_t>(first_cut_[buffer]);
    const auto end = begin + static_cast<std::ptrdiff_t>(num_cuts_[buffer]);
    const size_t from = base_[buffer] + slice.offset, to = from + slice.count;
    const auto first = std::lower_bound(begin, end, from), last = std::lower_bound(first, end, to);
    SIXFOLD_CHECK(last != end && *first == from && *last == to, "steps end at cuts");
    num_chunks = static_cast<uint32_t>(last - first);
    return static_cast<uint16_t>(first - pass_.cuts.begin());
  }

  static uint8_t connection(std::vector<int>& peers, int peer) {
    const auto found = std::find(peers.begin(), peers.end(), peer);
    const auto index = static_cast<size_t>(found - peers.begin());
    if (found == peers.end()) peers.push_back(peer);
    SIXFOLD_CHECK_LT(index, size_t{kNoConnection}, "peers that one channel of a rank reaches");
    return static_cast<uint8_t>(index);
  }

  const Schedule& schedule_;
  LoweredRank& lowered_;
  LoweredPass& pass_;
  std::vector<size_t> first_cut_, num_cuts_, base_;  // by buffer
  std::vector<uint32_t> position_;                   // by step: of its instruction in its channel's list
};

/// Slices of the longest instruction of any block: those of split 0, whose parts are the largest.
size_t most_slices(const Lowered& lowered) {
  size_t most = 0;
  for (const LoweredRank& rank : lowered.ranks) {
    for (const LoweredPass& pass : rank.passes) {
      for (const auto& list : pass.lists) {
        for (const Instruction& instruction : list)
          most = std::max(most, num_slices(lowered.shape, pass, instruction, 0));
      }
    }
  }
  return most;
}

Lowered lower_passes(Call call, const std::vector<bool>& in_place, Algorithm algorithm, const BlockShape& shape,
                     size_t step_capacity) {
  call.step_capacity = step_capacity;
  Lowered lowered;
  lowered.shape = shape;
  lowered.alike = call.counts == nullptr;
  lowered.pass_count = max_pass_count(call.primitive, algorithm, call.size, step_capacity, call.count, call.topology);
  lowered.num_passes = call.count == 0 ? 0 : (call.count - 1) / lowered.pass_count + 1;
  lowered.ranks.resize(static_cast<size_t>(call.size));
  const Builder build = find_builder(call.primitive, algorithm);
  for (size_t pass = 0; pass < lowered.num_passes; ++pass) {
    if (lowered.alike && pass > 0 && pass + 1 < lowered.num_passes) continue;
    call.pass_offset = pass * lowered.pass_count;
    call.pass_count = std::min(lowered.pass_count, call.count - call.pass_offset);
    std::vector<Schedule> schedules;
    for (call.rank = 0; call.rank < call.size; ++call.rank) {
      call.in_place = in_place[static_cast<size_t>(call.rank)];
      schedules.push_back(build(call));
    }
    lower_pass(call, schedules, lowered);
  }
  return lowered;
}

}  // namespace

void lower_pass(const Call& call, const std::vector<Schedule>& schedules, Lowered& lowered) {
  lowered.ranks.resize(schedules.size());
  for (const Schedule& schedule : schedules)
    lowered.num_channels = std::max(lowered.num_channels, schedule.num_channels);
  const auto num_channels = static_cast<size_t>(lowered.num_channels);
  const ChunkCuts cuts(call, schedules);
  for (size_t rank = 0; rank < schedules.size(); ++rank) {
    LoweredRank& own = lowered.ranks[rank];
    own.send_peers.resize(num_channels);
    own.recv_peers.resize(num_channels);
    own.awaits.resize(num_channels, -1);
    RankLowering(schedules[rank], cuts, static_cast<int>(rank), own).run();
  }
}

Lowered lower(const Call& call, const std::vector<bool>& in_place, Algorithm algorithm, const BlockShape& shape) {
  SIXFOLD_CHECK(builder_applies(call.primitive, algorithm, call.topology), "the algorithm has the primitive");
  // Parts of chunks are rounded up to granules, so a step may take more slots than its elements alone would: passes
  // are made smaller until none does.
  for (size_t capacity = shape.step_capacity();; capacity -= (capacity + 7) / 8) {
    SIXFOLD_CHECK(capacity > 0, "slots hold a part of a chunk for each rank");
    Lowered lowered = lower_passes(call, in_place, algorithm, shape, capacity);
    if (most_slices(lowered) > static_cast<size_t>(shape.num_slots - 1)) continue;
    const LoweredReport report = check_lowered(lowered);
    SIXFOLD_CHECK(report.ok(), report.detail);
    return lowered;
  }
}

ChunkWalk walk_of(const BlockShape& shape, const LoweredPass& pass, const Instruction& instruction, int split) {
  const uint16_t first = instruction.op & kReadsSource ? instruction.source : instruction.destination;
  return ChunkWalk(pass.cuts.data() + first, instruction.num_chunks, static_cast<uint32_t>(split),
                   static_cast<uint32_t>(shape.num_splits), shape.granule);
}

size_t num_slices(const BlockShape& shape, const LoweredPass& pass, const Instruction& instruction, int split) {
  size_t slices = 0;
  for (ChunkWalk walk = walk_of(shape, pass, instruction, split); !walk.done(); ++slices) {
    for (uint32_t filled = 0; !walk.done() && filled < shape.slot_elements;) walk.take(filled, shape.slot_elements);
  }
  return slices;
}

uint64_t sent_elements(const Lowered& lowered, int rank) {
  const LoweredRank& own = lowered.ranks[static_cast<size_t>(rank)];
  std::vector<uint64_t> of_stored;
  for (const LoweredPass& pass : own.passes) {
    uint64_t& sent = of_stored.emplace_back(0);
    for (const auto& list : pass.lists) {
      for (const Instruction& instruction : list) {
        if ((instruction.op & kSends) == 0) continue;
        const size_t first = instruction.op & kReadsSource ? instruction.source : instruction.destination;
        sent += pass.cuts[first + instruction.num_chunks] - pass.cuts[first];
      }
    }
  }
  uint64_t sent = 0;
  for (size_t pass = 0; pass < lowered.num_passes; ++pass) sent += of_stored[lowered.stored_pass(pass)];
  return sent;
}

std::string to_string(const Instruction& instruction) {
  static constexpr const char* kNames[] = {"Input", "Output", "Scratch", "Accum"};
  const auto chunks = [&](unsigned buffer, uint16_t first) {
    return std::string(kNames[buffer]) + " chunks " + std::to_string(first) + "+" +
           std::to_string(instruction.num_chunks);
  };
  std::string text;
  const auto append = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (instruction.op & kReceives) append("recv " + std::to_string(instruction.recv));
  if (instruction.op & kReadsSource) {
    append((instruction.op & kReduces ? "reduce " : "copy ") + chunks(instruction.buffers & 15u, instruction.source));
  }
  if (instruction.op & kStores) {
    text += (text.empty() ? "-> " : " -> ") + chunks(instruction.buffers >> 4, instruction.destination);
  }
  if (instruction.op & kFinishes) append("finish");
  if (instruction.op & kSends) append("send " + std::to_string(instruction.send));
  if (instruction.awaited != kNoInstruction) append("after instruction " + std::to_string(instruction.awaited));
  return text;
}

}  // namespace sixfold::comm
