// Which way the collectives of a group of ranks on GPUs run, from where its ranks are.
//
//   shared    threads of one process on one GPU: one grid for all of them (meeting.h)
//   peer      a GPU for each rank, all of one host, that reach each other's memory: a launch for each rank
//   stepped   the same where ranks share GPUs: kernels that end by themselves, since two that wait for each other may
//             never run at once
//   nccl      NCCL, where ours does not reach: of several hosts, or without peer access
//   staged    through pinned memory and the links of the host: always possible (staged_group.h)
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sixfold::comm {

enum class GpuMode : uint8_t { Auto, Shared, Peer, Stepped, Nccl, Staged };
/// "auto", "shared", ...
std::string_view gpu_mode_name(GpuMode mode);
/// Of --gpu-mode, which has all but nccl. Throws ConfigError with the allowed names.
GpuMode parse_gpu_mode(std::string_view name);

/// What CUDA calls the UUID of a GPU: no two of them are the same, on any host.
struct GpuId {
  std::array<uint8_t, 16> bytes{};
  bool operator==(const GpuId&) const = default;
};

/// Where a rank is.
struct GpuPlace {
  int host = 0;     // equal for ranks that share memory
  int process = 0;  // equal for threads of one process, on all hosts
  GpuId gpu;
  std::vector<GpuId> peers;  // other GPUs whose memory it reaches
  bool has_nccl = false;     // whether the library can be loaded
};

struct ModeChoice {
  GpuMode mode = GpuMode::Staged;  // never Auto
  std::string reason;              // "rank 2 is on another host than rank 0"; ranks of the group
};

/// `places`: by rank of the group, at least one. `wanted`: Auto, or a mode that must be. Throws ConfigError where it is
/// not possible, with the reason and the modes that are.
ModeChoice choose_mode(std::span<const GpuPlace> places, GpuMode wanted);

}  // namespace sixfold::comm
