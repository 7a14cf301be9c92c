// PeerLine: operations of one rank that run one after another on its device: the collectives of a group, or the
// messages of one peer, direction and lane.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "runtime/comm/cuda/host_stepper.h"
#include "runtime/comm/cuda/peer_plan.h"
#include "runtime/comm/cuda/peer_work.h"
#include "runtime/comm/host/group_plans.h"

namespace sixfold::comm {

/// Who waits for the other ranks: kernels, which then must run at once on all of them, or the host.
enum class PeerRunner : uint8_t { Launched, Stepped };

/// One collective, or one message of a batch.
struct PeerPart {
  std::shared_ptr<PeerWork> work;
  WatchedOperation watched;
  int to = -1;  // of a message that is sent, rank of the group
  DType dtype = DType::F32;
  size_t count = 0;
  const void* input = nullptr;
  void* output = nullptr;
  std::shared_ptr<StreamMark> after;  // nullptr: the buffers are ready

  // Of a collective.
  Call call;  // of this rank, without pass fields; counts: of `counts`
  ReduceOp op = ReduceOp::Sum;
  Algorithm algorithm = Algorithm::Auto;
  std::shared_ptr<const std::vector<size_t>> counts;
  uint32_t number = 0;  // among the operations of low latency; 0: it is none of them

  // What is ready to run, once prepared: one of the two.
  std::shared_ptr<PeerPlan> plan;
  std::optional<LowLatencyLaunch> words;

  // Of what was launched.
  std::shared_ptr<DeviceMark> mark;
  std::unique_ptr<HostStepper> stepper;
};

class PeerLine {
 public:
  /// Sets plan or words of a part; false: not yet. Parts are prepared in their order.
  using Prepare = std::function<bool(PeerPart&)>;

  /// topology: of the group. first_channel: of the line, on the board. Both outlive it.
  PeerLine(PeerRunner runner, std::unique_ptr<PeerQueue> queue, const PeerBoard& board, const Topology& topology,
           int rank, int first_channel, Prepare prepare);

  void push(PeerPart part);
  /// True when anything moved. Throws CommError when something failed on the device.
  bool advance();
  /// The oldest that is not done; nullptr when idle.
  std::shared_ptr<PeerWork> outstanding() const;
  /// Whose part it was, when advance() has thrown.
  const PeerWork& failed() const { return *current_; }

 private:
  bool launch_next();
  void launch(PeerPart& part);
  std::unique_ptr<HostStepper> step(const PeerPart& part);
  bool run_first();
  SentBytes sent(const PeerPart& part) const;

  PeerRunner runner_;
  std::unique_ptr<PeerQueue> queue_;
  const PeerBoard& board_;
  const Topology& topology_;
  int rank_, first_channel_;
  Prepare prepare_;
  std::deque<PeerPart> waiting_, running_;
  std::shared_ptr<PeerWork> current_;  // that something is done for
  /// Messages that this rank has moved over its end of each link, where the host waits: by peer, channel, direction.
  std::map<std::tuple<int, uint32_t, bool>, uint64_t> moved_;
};

}  // namespace sixfold::comm
