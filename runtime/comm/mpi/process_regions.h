// ProcessRegions: memory shared by processes of one host.
//
// The first member makes an anonymous memory file (memfd) and hands its descriptor to the others over Unix sockets. The
// file has no name: nothing can be left behind, and no foreign segment can be joined. Its pages belong to a mount of
// the kernel's own (memfd_create(2)), which is limited by memory alone: the size of /dev/shm, a mount like any other,
// is no limit.
#pragma once

#include <map>

#include "runtime/comm/host/failure.h"
#include "runtime/comm/host/shared_region.h"

namespace sixfold::comm {

class ProcessRegions final : public RegionProvider {
 public:
  /// `job` is the same random word on all ranks of the World, different for every World. Every rank must have
  /// constructed its own before any calls open(). Throws CommError.
  ProcessRegions(uint64_t job, int rank, double timeout_s);
  ~ProcessRegions() override;

  /// From now on, waits for other ranks end as all others do (patience.h). `failure` outlives the regions.
  void set_failure(Failure& failure) { failure_ = &failure; }

  std::shared_ptr<SharedRegion> open(const std::string& key, size_t bytes, const std::vector<int>& members) override;

 private:
  void send_descriptor(int fd, const std::string& key, int to);
  int receive_descriptor(const std::string& key, int from);
  void receive_one();

  uint64_t job_;
  int rank_;
  double timeout_s_;
  Failure* failure_ = nullptr;  // none while the World starts
  int socket_ = -1;
  std::map<std::string, int> arrived_;  // descriptors of regions that this rank has not asked for yet
};

}  // namespace sixfold::comm
