#include "runtime/comm/cuda/program_image.h"

#include <algorithm>
#include <cstring>

#include "runtime/core/error.h"

namespace sixfold::comm {

ProgramImage::ProgramImage(const Lowered& lowered, int rank, float scale, const LinkOf& link) {
  const LoweredRank& own = lowered.ranks[static_cast<size_t>(rank)];
  for (const LoweredPass& pass : own.passes) {
    const auto first_cut = static_cast<uint32_t>(cuts.size());
    cuts.insert(cuts.end(), pass.cuts.begin(), pass.cuts.end());
    // Later passes may use channels that this one does not.
    for (size_t channel = 0; channel < static_cast<size_t>(lowered.num_channels); ++channel) {
      const auto first = static_cast<uint32_t>(instructions.size());
      if (channel < pass.lists.size()) {
        instructions.insert(instructions.end(), pass.lists[channel].begin(), pass.lists[channel].end());
      }
      lists.push_back({first, static_cast<uint32_t>(instructions.size()) - first, first_cut});
    }
  }
  awaits.assign(own.awaits.begin(), own.awaits.end());
  awaits.resize(static_cast<size_t>(lowered.num_channels), -1);
  awaited_by.assign(awaits.size(), -1);
  for (size_t channel = 0; channel < awaits.size(); ++channel) {
    if (awaits[channel] < 0) continue;
    int32_t& waiting = awaited_by[static_cast<size_t>(awaits[channel])];
    SIXFOLD_CHECK_EQ(waiting, -1, "a channel publishes for one other");
    waiting = static_cast<int32_t>(channel);
  }

  size_t max_connections = 0;
  for (const auto& peers : own.send_peers) max_connections = std::max(max_connections, peers.size());
  for (const auto& peers : own.recv_peers) max_connections = std::max(max_connections, peers.size());
  const auto connect = [&](const std::vector<std::vector<int>>& peers_of, bool sending) {
    std::vector<BlockLink> table;
    for (int channel = 0; channel < lowered.num_channels; ++channel) {
      for (int split = 0; split < lowered.shape.num_splits; ++split) {
        const size_t end = table.size() + max_connections;
        if (static_cast<size_t>(channel) < peers_of.size()) {
          for (int peer : peers_of[static_cast<size_t>(channel)]) table.push_back(link(peer, channel, split, sending));
        }
        table.resize(end);
      }
    }
    return table;
  };
  sends = connect(own.send_peers, true);
  recvs = connect(own.recv_peers, false);

  program.num_passes = lowered.num_passes;
  program.pass_count = lowered.pass_count;
  program.num_stored_passes = static_cast<uint32_t>(own.passes.size());
  program.alike = lowered.alike;
  program.num_channels = static_cast<uint32_t>(lowered.num_channels);
  program.num_splits = static_cast<uint32_t>(lowered.shape.num_splits);
  program.max_connections = static_cast<uint32_t>(max_connections);
  program.num_slots = static_cast<uint32_t>(lowered.shape.num_slots);
  program.slot_elements = lowered.shape.slot_elements;
  program.granule = lowered.shape.granule;
  program.scale = scale;
}

RankProgram ProgramImage::view() const {
  RankProgram with_tables = program;
  with_tables.instructions = instructions.data();
  with_tables.cuts = cuts.data();
  with_tables.lists = lists.data();
  with_tables.awaits = awaits.data();
  with_tables.awaited_by = awaited_by.data();
  with_tables.sends = sends.data();
  with_tables.recvs = recvs.data();
  return with_tables;
}

template <typename T>
size_t ProgramTables::append(const std::vector<T>& table) {
  const size_t begin = (bytes_.size() + 15) / 16 * 16;
  bytes_.resize(begin + table.size() * sizeof(T));
  if (!table.empty()) std::memcpy(bytes_.data() + begin, table.data(), table.size() * sizeof(T));
  return begin;
}

void ProgramTables::add(const ProgramImage& image, const RankProgram& program) {
  Places at{};
  at.instructions = append(image.instructions);
  at.cuts = append(image.cuts);
  at.lists = append(image.lists);
  at.awaits = append(image.awaits);
  at.awaited_by = append(image.awaited_by);
  at.sends = append(image.sends);
  at.recvs = append(image.recvs);
  places_.push_back(at);
  programs_.push_back(program);
}

std::vector<std::byte> ProgramTables::at(std::byte* base) const {
  std::vector<std::byte> all = bytes_;
  all.resize(bytes());
  for (size_t i = 0; i < programs_.size(); ++i) {
    const Places& place = places_[i];
    RankProgram program = programs_[i];
    program.instructions = reinterpret_cast<const Instruction*>(base + place.instructions);
    program.cuts = reinterpret_cast<const uint64_t*>(base + place.cuts);
    program.lists = reinterpret_cast<const InstructionList*>(base + place.lists);
    program.awaits = reinterpret_cast<const int32_t*>(base + place.awaits);
    program.awaited_by = reinterpret_cast<const int32_t*>(base + place.awaited_by);
    program.sends = reinterpret_cast<const BlockLink*>(base + place.sends);
    program.recvs = reinterpret_cast<const BlockLink*>(base + place.recvs);
    std::memcpy(all.data() + programs_at() + i * sizeof(RankProgram), &program, sizeof(program));
  }
  return all;
}

}  // namespace sixfold::comm
