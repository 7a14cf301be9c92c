#include "runtime/comm/cuda/mode.h"

#include <algorithm>

#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

constexpr std::array kAllModes = {GpuMode::Auto,    GpuMode::Shared, GpuMode::Peer,
                                  GpuMode::Stepped, GpuMode::Nccl,   GpuMode::Staged};
/// In the order of preference.
constexpr std::array kModes = {GpuMode::Shared, GpuMode::Peer, GpuMode::Stepped, GpuMode::Nccl, GpuMode::Staged};

std::string rank_text(size_t rank) {
  return "rank " + std::to_string(rank);
}

bool same_gpu(const GpuPlace& a, const GpuPlace& b) {
  return a.host == b.host && a.gpu == b.gpu;
}

bool reaches(const GpuPlace& a, const GpuPlace& b) {
  return same_gpu(a, b) || std::find(a.peers.begin(), a.peers.end(), b.gpu) != a.peers.end();
}

// What is in the way of each condition; empty where it holds.

std::string no_one_process(std::span<const GpuPlace> places) {
  for (size_t r = 1; r < places.size(); ++r) {
    if (places[r].process != places[0].process) return rank_text(r) + " is another process than rank 0";
    if (!same_gpu(places[r], places[0])) return rank_text(r) + " is on another GPU than rank 0";
  }
  return "";
}

std::string no_one_host(std::span<const GpuPlace> places) {
  for (size_t r = 1; r < places.size(); ++r) {
    if (places[r].host != places[0].host) return rank_text(r) + " is on another host than rank 0";
  }
  return "";
}

std::string no_own_gpu(std::span<const GpuPlace> places) {
  for (size_t r = 1; r < places.size(); ++r) {
    for (size_t other = 0; other < r; ++other) {
      if (same_gpu(places[r], places[other]))
        return "ranks " + std::to_string(other) + " and " + std::to_string(r) + " share a GPU";
    }
  }
  return "";
}

std::string no_peer_access(std::span<const GpuPlace> places) {
  for (size_t r = 0; r < places.size(); ++r) {
    for (size_t other = 0; other < places.size(); ++other) {
      if (!reaches(places[r], places[other]))
        return "the GPU of " + rank_text(r) + " does not reach that of " + rank_text(other);
    }
  }
  return "";
}

std::string no_nccl(std::span<const GpuPlace> places) {
  for (size_t r = 0; r < places.size(); ++r) {
    if (!places[r].has_nccl) return rank_text(r) + " finds no NCCL";
  }
  return "";
}

std::string obstacle(std::span<const GpuPlace> places, GpuMode mode) {
  using Condition = std::string (*)(std::span<const GpuPlace>);
  std::vector<Condition> conditions;
  if (mode == GpuMode::Shared) conditions = {no_one_process};
  if (mode == GpuMode::Peer) conditions = {no_one_host, no_own_gpu, no_peer_access};
  if (mode == GpuMode::Stepped) conditions = {no_one_host, no_peer_access};
  if (mode == GpuMode::Nccl) conditions = {no_own_gpu, no_nccl};
  for (Condition condition : conditions) {
    const std::string found = condition(places);
    if (!found.empty()) return found;
  }
  return "";
}

/// Of a mode that nothing is in the way of.
std::string reason_for(std::span<const GpuPlace> places, GpuMode mode) {
  switch (mode) {
    case GpuMode::Shared:
      return places.size() == 1 ? "one rank" : "threads of one process on one GPU";
    case GpuMode::Peer:
      return "a GPU for each rank, and each reaches all others";
    case GpuMode::Stepped:
      return "one host, " + no_own_gpu(places);
    case GpuMode::Nccl:
      return "a GPU for each rank, and " + obstacle(places, GpuMode::Stepped);
    default:
      return obstacle(places, GpuMode::Stepped) + "; not by NCCL, since " + obstacle(places, GpuMode::Nccl);
  }
}

[[noreturn]] void refuse(std::span<const GpuPlace> places, GpuMode wanted) {
  const bool nccl = wanted == GpuMode::Nccl;
  std::string allowed = nccl ? "own" : "auto";
  for (GpuMode mode : kModes) {
    if (nccl || mode == GpuMode::Nccl || !obstacle(places, mode).empty()) continue;
    allowed += ", " + std::string(gpu_mode_name(mode));
  }
  throw ConfigError((nccl ? "--comm nccl" : "--gpu-mode " + std::string(gpu_mode_name(wanted))) + ": " +
                    obstacle(places, wanted) + " (allowed here: " + allowed + ")");
}

}  // namespace

std::string_view gpu_mode_name(GpuMode mode) {
  constexpr std::array<std::string_view, kAllModes.size()> kNames = {"auto",    "shared", "peer",
                                                                     "stepped", "nccl",   "staged"};
  return kNames.at(static_cast<size_t>(mode));
}

GpuMode parse_gpu_mode(std::string_view name) {
  std::string allowed;
  for (GpuMode mode : kAllModes) {
    if (mode == GpuMode::Nccl) continue;
    if (gpu_mode_name(mode) == name) return mode;
    allowed += (allowed.empty() ? "" : ", ") + std::string(gpu_mode_name(mode));
  }
  throw ConfigError("--gpu-mode " + std::string(name) + ": allowed are " + allowed);
}

ModeChoice choose_mode(std::span<const GpuPlace> places, GpuMode wanted) {
  SIXFOLD_CHECK(!places.empty(), "a group has ranks");
  if (wanted != GpuMode::Auto) {
    if (!obstacle(places, wanted).empty()) refuse(places, wanted);
    return {wanted, "asked for"};
  }
  const auto mode = std::find_if(kModes.begin(), kModes.end(), [&](GpuMode m) { return obstacle(places, m).empty(); });
  return {*mode, reason_for(places, *mode)};
}

}  // namespace sixfold::comm
