// Meeting: where rank threads that share a GPU deposit their parts of operations. The last to arrive launches; nobody
// waits for anybody.
//
// Ranks may issue operations of different groups in different order. A rank only goes on to work that depends on an
// operation once that is launched (Work::wait), so whatever a deposited operation depends on was launched before it,
// and one queue in the order of launch cannot block itself.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/cuda/grid_device.h"
#include "runtime/comm/host/signature.h"

namespace sixfold::comm {

/// What one rank brings. Of a message: side 0 sends, side 1 receives.
struct Deposit {
  Signature signature;
  const void* in = nullptr;
  void* out = nullptr;
  bool in_place = false;
  std::shared_ptr<const std::vector<size_t>> counts;  // as Call::counts
  std::shared_ptr<StreamMark> mark;
};

/// One operation, from its first deposit on.
class Rendezvous {
 public:
  explicit Rendezvous(size_t num_ranks) : deposits_(num_ranks) {}
  /// Launched, or failed to.
  bool launched() const { return launched_.load(std::memory_order_acquire); }
  /// nullptr before the launch, and where that has failed.
  GridWork* work() const { return launched() ? work_.get() : nullptr; }

 private:
  friend class Meeting;
  std::vector<std::optional<Deposit>> deposits_;  // by rank; guarded by the Meeting's mutex
  size_t num_arrived_ = 0;
  std::shared_ptr<GridWork> work_;
  std::atomic<bool> launched_{false};
};

class Meeting {
 public:
  /// `device` outlives it.
  explicit Meeting(GridDevice& device) : device_(device) {}

  /// `group` and `sequence` name the operation; `call` is it, but for rank, in_place and counts. Throws CommError where
  /// an earlier rank has deposited another operation in its place, naming both; and what the launch throws.
  std::shared_ptr<Rendezvous> arrive(const std::string& group, uint64_t sequence, const Call& call, int rank,
                                     Deposit deposit);
  /// The same of the message `sequence` of `lane`, of one sender and receiver.
  std::shared_ptr<Rendezvous> arrive_message(const std::string& lane, uint64_t sequence, int side, Deposit deposit);

  /// Ranks of the group that have not deposited their part of it.
  std::vector<int> absent(const Rendezvous& rendezvous);
  GridDevice& device() { return device_; }

 private:
  using Key = std::pair<std::string, uint64_t>;

  std::shared_ptr<Rendezvous> deposit(const Key& key, size_t num_ranks, size_t rank, Deposit deposit);
  void launch(Rendezvous& rendezvous, const Call& call);

  GridDevice& device_;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<Rendezvous>> open_;  // not launched yet
};

/// Those of the ranks of one World that are threads of this process: one for each GPU.
class Meetings {
 public:
  /// `device` outlives this. Any thread; the Meeting lives as long as this.
  Meeting& at(GridDevice& device) {
    const std::lock_guard lock(mutex_);
    return meetings_.try_emplace(&device, device).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<GridDevice*, Meeting> meetings_;
};

}  // namespace sixfold::comm
