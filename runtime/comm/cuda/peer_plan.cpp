#include "runtime/comm/cuda/peer_plan.h"

namespace sixfold::comm {

namespace {

std::vector<std::vector<int>> members_of(const std::vector<std::vector<int>>& peers, const PlanOwner& owner) {
  std::vector<std::vector<int>> mapped = peers;
  for (auto& of_channel : mapped) {
    for (int& peer : of_channel) peer = owner.members[static_cast<size_t>(peer)];
  }
  return mapped;
}

float scale_of(const Lowered& lowered, ReduceOp op) {
  return op == ReduceOp::Avg ? 1.0f / static_cast<float>(lowered.ranks.size()) : 1.0f;
}

}  // namespace

PeerPlan::PeerPlan(const Lowered& lowered, const PlanOwner& owner, DType dtype, ReduceOp op, PeerArena& arena,
                   const PeerLinks& links)
    : dtype_(dtype),
      op_(op),
      rank_(owner.members[static_cast<size_t>(owner.rank)]),
      sent_bytes_(sent_elements(lowered, owner.rank) * dtype_bytes(dtype)),
      send_peers_(members_of(lowered.ranks[static_cast<size_t>(owner.rank)].send_peers, owner)),
      recv_peers_(members_of(lowered.ranks[static_cast<size_t>(owner.rank)].recv_peers, owner)),
      image_(lowered, owner.rank, scale_of(lowered, op), [&](int peer, int channel, int split, bool sends) {
        return links.end(owner.members[static_cast<size_t>(peer)], channel, split, sends);
      }) {
  const LoweredRank& own = lowered.ranks[static_cast<size_t>(owner.rank)];
  const size_t accum_at = (own.scratch_count * dtype_bytes(dtype) + 255) / 256 * 256;
  const size_t accum_bytes = own.accum_count * dtype_bytes(kernels::accum_dtype(dtype));
  RankProgram program = image_.program;
  if (accum_at + accum_bytes > 0) {
    workspace_ = arena.take(accum_at + accum_bytes, PeerArena::Kind::Any);
    program.buffers[static_cast<size_t>(Buffer::Scratch)] = workspace_.data();
    program.buffers[static_cast<size_t>(Buffer::Accum)] = workspace_.data() + accum_at;
  }
  program.published = reinterpret_cast<uint64_t*>(owner.flags);
  if (owner.flags != nullptr) program.seen = program.published + owner.num_flag_lines * kFlagStride;
  ProgramTables tables;
  tables.add(image_, program);
  tables_ = arena.take(tables.bytes(), PeerArena::Kind::Any);
  programs_at_ = tables.programs_at();
  bytes_ = tables.at(tables_.data());
}

void PeerPlan::upload(PeerQueue& queue) {
  if (bytes_.empty()) return;
  queue.upload(tables_.data(), bytes_);
  bytes_ = {};
}

ProgramLaunch PeerPlan::launch(const void* input, void* output) const {
  ProgramLaunch launch;
  launch.program = reinterpret_cast<const RankProgram*>(tables_.data() + programs_at_);
  launch.input = input;
  launch.output = output;
  launch.dtype = dtype_;
  launch.op = op_;
  launch.num_blocks = static_cast<int>(image_.program.num_channels * image_.program.num_splits);
  launch.rank = rank_;
  return launch;
}

}  // namespace sixfold::comm
