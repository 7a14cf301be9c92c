// MpiLinks: what goes between hosts, by MPI's point-to-point messages.
//
//   link       a FIFO of slots in memory of each side. A filled slot leaves as one message, header and used bytes
//              (MPI_Isend), and is free again when the request is done. The receiver keeps a receive posted for every
//              slot that is free (MPI_Irecv), so a message finds its place without being copied.
//   group      a communicator of its own, the tag is the channel: groups never mix, and MPI keeps the messages of one
//              (sender, tag) in order.
//   failures   a message to every rank on another host, for which each keeps a receive posted.
//
// All calls go under one mutex, which is what MPI_THREAD_SERIALIZED asks for.
#pragma once

#include <mpi.h>

#include <mutex>

#include "runtime/comm/host/abort.h"
#include "runtime/comm/host/carrier.h"
#include "runtime/comm/host/shared_region.h"
#include "runtime/comm/schedule/topology.h"

namespace sixfold::comm {

class MpiLinks final : public CarrierProvider, public AbortRelay {
 public:
  /// Collective over MPI_COMM_WORLD, once, while the World starts. `hosts`: which ranks share memory; `abort` is theirs
  /// and outlives this. Throws CommError.
  MpiLinks(const Topology& hosts, AbortState& abort);
  /// Before MPI_Finalize. Never run in a World that has failed, where MPI may still use its memory.
  ~MpiLinks() override;
  MpiLinks(const MpiLinks&) = delete;
  MpiLinks& operator=(const MpiLinks&) = delete;

  std::unique_ptr<LinkCarrier> open(const std::vector<int>& members, const LinkOptions& options) override;
  /// Waits for MPI to take the messages, for a fraction of a second.
  void announce() override;
  std::optional<Notice> poll() override;

 private:
  friend class MpiCarrier;
  struct Message {
    int32_t rank;
    char text[sizeof(AbortState::text)];
  };

  /// Keeps memory that requests of a failed World may still use.
  void abandon(std::shared_ptr<SharedRegion> memory) { abandoned_.push_back(std::move(memory)); }
  bool failed() const;

  Topology hosts_;
  AbortState& abort_;
  std::mutex mutex_;
  int rank_ = 0;
  MPI_Comm world_ = MPI_COMM_NULL;
  Message notice_{}, own_notice_{};  // one that comes, one that goes
  MPI_Request notice_request_ = MPI_REQUEST_NULL;
  bool announced_ = false;
  std::vector<std::shared_ptr<SharedRegion>> abandoned_;
};

}  // namespace sixfold::comm
