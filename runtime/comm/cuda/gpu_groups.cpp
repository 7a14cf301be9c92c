#include "runtime/comm/cuda/gpu_groups.h"

#include <algorithm>

#include "runtime/comm/cuda/meeting_group.h"
#include "runtime/comm/cuda/peer_group.h"
#include "runtime/comm/cuda/staged_group.h"
#include "runtime/comm/nccl/nccl_group.h"
#include "runtime/core/log.h"

namespace sixfold::comm {

namespace {

constexpr size_t kMaxPeers = 31;  // GPUs of one host, less one; those beyond count as out of reach

/// A GpuPlace as it travels; what shows where ranks are (host and process) goes with it.
struct PlaceRecord {
  int32_t host, process, has_nccl, num_peers;
  GpuId gpu, peers[kMaxPeers];
};

PlaceRecord record_of(const GpuPlace& place) {
  PlaceRecord record{};
  record.host = place.host;
  record.process = place.process;
  record.has_nccl = place.has_nccl;
  record.gpu = place.gpu;
  record.num_peers = static_cast<int32_t>(std::min(place.peers.size(), kMaxPeers));
  std::copy_n(place.peers.begin(), record.num_peers, record.peers);
  return record;
}

GpuPlace place_of(const PlaceRecord& record) {
  return {
      record.host, record.process, record.gpu, {record.peers, record.peers + record.num_peers}, record.has_nccl != 0};
}

std::vector<GpuPlace> gather(const GpuPlace& own, OwnGroup& world) {
  const PlaceRecord record = record_of(own);
  std::vector<PlaceRecord> records(static_cast<size_t>(world.size()));
  Collective c;
  c.primitive = Primitive::AllGather;
  c.in = &record;
  c.out = records.data();
  c.count = sizeof(PlaceRecord);
  c.dtype = DType::U8;
  c.tag = "gpu.places";
  world.context().engine.wait(*world.start(c));
  std::vector<GpuPlace> places;
  for (const PlaceRecord& r : records) places.push_back(place_of(r));
  return places;
}

/// nullptr where it must not be used, or is not there.
std::shared_ptr<const NcclApi> load(const NcclSetup* nccl) {
  if (nccl == nullptr) return nullptr;
  try {
    return NcclApi::load(nccl->library);
  } catch (const ConfigError&) {
    return nullptr;
  }
}

}  // namespace

GpuGroups::GpuGroups(const Parts& parts, GpuPlace own, OwnGroup& world, GpuMode wanted)
    : parts_(parts), nccl_(load(parts.nccl)) {
  own.has_nccl = nccl_ != nullptr;
  places_ = gather(own, world);
  const ModeChoice choice = choose_mode(places_, wanted);
  use_.mode = choice.mode;
  use_.num_sharing = static_cast<int>(std::count_if(places_.begin(), places_.end(), [&](const GpuPlace& place) {
    return place.host == places_[0].host && place.gpu == places_[0].gpu;
  }));
  if (world.rank() == 0) {
    log_info("collectives on GPUs: " + std::string(gpu_mode_name(choice.mode)) + " (" + choice.reason + ")");
  }
}

std::unique_ptr<GroupBackend> GpuGroups::open(std::unique_ptr<OwnGroup> host, GpuMode wanted) {
  std::vector<GpuPlace> places;
  for (int r = 0; r < host->size(); ++r) places.push_back(places_[static_cast<size_t>(host->world_rank(r))]);
  const OpenGroup open_part = [this, wanted](std::unique_ptr<OwnGroup> part) { return open(std::move(part), wanted); };
  switch (choose_mode(places, wanted).mode) {
    case GpuMode::Shared:
      return std::make_unique<MeetingGroup>(parts_.meetings.at(parts_.gpus.grid(parts_.local_rank)), std::move(host),
                                            open_part);
    case GpuMode::Peer:
      return std::make_unique<PeerGroup>(parts_.gpus.peer(parts_.local_rank), std::move(host), PeerRunner::Launched,
                                         open_part);
    case GpuMode::Stepped:
      return std::make_unique<PeerGroup>(parts_.gpus.peer(parts_.local_rank), std::move(host), PeerRunner::Stepped,
                                         open_part);
    case GpuMode::Nccl:
      return std::make_unique<NcclGroup>(*parts_.nccl, std::move(host), open_part);
    default:
      return std::make_unique<StagedGroup>(parts_.gpus.staging(parts_.local_rank), std::move(host), open_part);
  }
}

}  // namespace sixfold::comm
