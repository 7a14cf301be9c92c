#include "runtime/comm/schedule/cost.h"

#include <algorithm>
#include <deque>
#include <queue>

#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

/// Something that serves one slice at a time, in the order in which it is asked.
struct Resource {
  double free_at = 0;
  /// When service that takes `duration` and is asked for at `now` starts.
  double reserve(double now, double duration) {
    const double start = std::max(now, free_at);
    free_at = start + duration;
    return start;
  }
};

/// One FIFO of slots, from a channel of the sender to the same channel of the receiver.
struct Link {
  int sender = 0, receiver = 0, channel = 0;
  const LinkRate* rate = nullptr;
  Resource* egress = nullptr;
  Resource* ingress = nullptr;
  int occupied = 0;             // slots written and not released yet
  std::vector<size_t> arrived;  // bytes of the slices that the receiver has not taken yet, at most num_slots
};

struct Pass {
  Schedule schedule;
  std::vector<size_t> slices_done;  // per step
};

/// Where a channel of a rank stands.
struct Cursor {
  size_t pass = 0, step = 0, slice = 0;
  bool done = false;
  bool computing = false;  // the slice has started and not ended
  bool listed = false;     // waits for its turn
};

struct RankState {
  std::deque<Pass> passes;  // those that some channel has not left yet
  size_t first_pass = 0;
  std::vector<Cursor> cursors;  // per channel
  Resource compute;
  double finish = 0;
};

enum class EventKind : uint8_t { ComputeEnds, FirstByteIn, Arrives };
struct Event {
  double time = 0;
  uint64_t sequence = 0;  // given by push(): among events of one moment the older one comes first
  EventKind kind = EventKind::ComputeEnds;
  int rank = 0, channel = 0;  // ComputeEnds
  int link = 0;               // the others
  size_t bytes = 0;
  bool operator>(const Event& other) const {
    return time != other.time ? time > other.time : sequence > other.sequence;
  }
};

class Simulator {
 public:
  Simulator(const Call& call, const std::function<Schedule(const Call&)>& builder, const LinkShape& links,
            size_t element_bytes, size_t pass_count, const Profile& profile);
  CostReport run();

 private:
  struct Ports {
    Resource egress, ingress;
  };

  Pass& pass(int rank, size_t index);
  void retire_passes(RankState& state);
  bool settle(int rank, int channel);
  int link_id(int sender, int receiver, int channel);
  Ports& ports(int rank, LinkClass link_class);
  void list(int rank, int channel);
  void take_turns();
  void start_slice(int rank, int channel);
  void end_slice(int rank, int channel);
  void send(int rank, const Step& step, size_t bytes);
  void release(int rank, const Step& step, size_t bytes);
  void push(Event event);
  void handle(const Event& event);
  const Step& step_at(int rank, const Cursor& cursor) { return pass(rank, cursor.pass).schedule.steps[cursor.step]; }
  size_t slice_bytes(const Step& step, const Cursor& cursor) const {
    return std::min(slice_elements_, step.count() - cursor.slice * slice_elements_) * element_bytes_;
  }

  Call call_;
  const std::function<Schedule(const Call&)>& builder_;
  const LinkShape shape_;
  const size_t element_bytes_, slice_elements_, pass_count_, num_passes_;
  const Profile& profile_;
  const Topology topology_;
  int num_channels_ = 1;
  std::vector<RankState> ranks_;
  std::vector<Ports> intra_ports_;  // per rank
  std::vector<Ports> inter_ports_;  // per node and rail
  std::deque<Link> links_;          // those in use; a deque, so that they stay where they are
  std::vector<int> link_ids_;       // per sender, receiver and channel: index into links_, -1 where not used yet
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t num_events_ = 0;
  std::deque<std::pair<int, int>> turns_;  // rank, channel: those that may be able to go on now
  double now_ = 0;
  CostReport report_;
};

size_t passes_of(size_t count, size_t pass_count) {
  return (count + pass_count - 1) / pass_count;
}

Simulator::Simulator(const Call& call, const std::function<Schedule(const Call&)>& builder, const LinkShape& links,
                     size_t element_bytes, size_t pass_count, const Profile& profile)
    : call_(call),
      builder_(builder),
      shape_(links),
      element_bytes_(element_bytes),
      slice_elements_(links.slot_bytes / element_bytes),
      pass_count_(pass_count),
      num_passes_(passes_of(call.count, pass_count)),
      profile_(profile),
      topology_(call.topology != nullptr ? *call.topology : Topology::one_node(call.size)),
      ranks_(static_cast<size_t>(call.size)),
      intra_ports_(static_cast<size_t>(call.size)),
      inter_ports_(static_cast<size_t>(topology_.num_nodes() * profile.num_rails)) {
  SIXFOLD_CHECK_EQ(topology_.size(), call.size, "ranks of the topology");
  if (num_passes_ == 0) return;
  for (int rank = 0; rank < call.size; ++rank) {
    num_channels_ = std::max(num_channels_, pass(rank, 0).schedule.num_channels);
  }
  for (RankState& state : ranks_) state.cursors.resize(static_cast<size_t>(num_channels_));
  link_ids_.assign(static_cast<size_t>(call.size) * static_cast<size_t>(call.size * num_channels_), -1);
}

Pass& Simulator::pass(int rank, size_t index) {
  RankState& state = ranks_[static_cast<size_t>(rank)];
  while (state.first_pass + state.passes.size() <= index) {
    call_.rank = rank;
    call_.pass_offset = (state.first_pass + state.passes.size()) * pass_count_;
    call_.pass_count = std::min(pass_count_, call_.count - call_.pass_offset);
    Pass& next = state.passes.emplace_back();
    next.schedule = builder_(call_);
    next.slices_done.assign(next.schedule.steps.size(), 0);
  }
  return state.passes[index - state.first_pass];
}

void Simulator::retire_passes(RankState& state) {
  size_t oldest = num_passes_;
  for (const Cursor& cursor : state.cursors) {
    if (!cursor.done) oldest = std::min(oldest, cursor.pass);
  }
  for (; state.first_pass < oldest && !state.passes.empty(); ++state.first_pass) state.passes.pop_front();
}

/// Puts the cursor on the next step of its channel with slices left; false when the channel has none.
bool Simulator::settle(int rank, int channel) {
  RankState& state = ranks_[static_cast<size_t>(rank)];
  Cursor& cursor = state.cursors[static_cast<size_t>(channel)];
  const size_t began_in = cursor.pass;
  for (; cursor.pass < num_passes_; ++cursor.pass, cursor.step = cursor.slice = 0) {
    const std::vector<Step>& steps = pass(rank, cursor.pass).schedule.steps;
    for (; cursor.step < steps.size(); ++cursor.step, cursor.slice = 0) {
      const Step& step = steps[cursor.step];
      if (step.channel == channel && cursor.slice * slice_elements_ < step.count()) break;
    }
    if (cursor.step < steps.size()) break;
  }
  cursor.done = cursor.pass == num_passes_;
  if (cursor.pass != began_in) retire_passes(state);
  return !cursor.done;
}

Simulator::Ports& Simulator::ports(int rank, LinkClass link_class) {
  if (link_class == LinkClass::Intra) return intra_ports_[static_cast<size_t>(rank)];
  const int rail = topology_.rail_of(rank) % profile_.num_rails;
  return inter_ports_[static_cast<size_t>(topology_.node_of(rank) * profile_.num_rails + rail)];
}

int Simulator::link_id(int sender, int receiver, int channel) {
  int& id = link_ids_[(static_cast<size_t>(sender) * ranks_.size() + static_cast<size_t>(receiver)) *
                          static_cast<size_t>(num_channels_) +
                      static_cast<size_t>(channel)];
  if (id < 0) {
    id = static_cast<int>(links_.size());
    const LinkClass link_class = topology_.link(sender, receiver);
    Link& link = links_.emplace_back();
    link.sender = sender;
    link.receiver = receiver;
    link.channel = channel;
    link.rate = &profile_.link(link_class);
    link.egress = &ports(sender, link_class).egress;
    link.ingress = &ports(receiver, link_class).ingress;
  }
  return id;
}

void Simulator::list(int rank, int channel) {
  Cursor& cursor = ranks_[static_cast<size_t>(rank)].cursors[static_cast<size_t>(channel)];
  if (cursor.done || cursor.computing || cursor.listed) return;
  cursor.listed = true;
  turns_.emplace_back(rank, channel);
}

void Simulator::take_turns() {
  while (!turns_.empty()) {
    const auto [rank, channel] = turns_.front();
    turns_.pop_front();
    ranks_[static_cast<size_t>(rank)].cursors[static_cast<size_t>(channel)].listed = false;
    start_slice(rank, channel);
  }
}

/// Starts the next slice of a channel, where nothing is missing.
void Simulator::start_slice(int rank, int channel) {
  RankState& state = ranks_[static_cast<size_t>(rank)];
  Cursor& cursor = state.cursors[static_cast<size_t>(channel)];
  const Step& step = step_at(rank, cursor);
  if (step.after != kNoStep) {
    const size_t awaited = static_cast<size_t>(step.after);
    if (pass(rank, cursor.pass).slices_done[awaited] <= cursor.slice) return;
  }
  if (step.recv_peer != kNoPeer) {
    if (links_[static_cast<size_t>(link_id(step.recv_peer, rank, channel))].arrived.empty()) return;
  }
  if (step.send_peer != kNoPeer) {
    Link& to = links_[static_cast<size_t>(link_id(rank, step.send_peer, channel))];
    if (to.occupied == shape_.num_slots) return;
    ++to.occupied;
  }
  const double rate = step.reduce ? profile_.reduce_bytes_per_s : profile_.copy_bytes_per_s;
  if (rate == 0) {
    end_slice(rank, channel);
    return;
  }
  const double duration = static_cast<double>(slice_bytes(step, cursor)) / rate;
  cursor.computing = true;
  push({.time = state.compute.reserve(now_, duration) + duration,
        .kind = EventKind::ComputeEnds,
        .rank = rank,
        .channel = channel});
}

void Simulator::end_slice(int rank, int channel) {
  RankState& state = ranks_[static_cast<size_t>(rank)];
  Cursor& cursor = state.cursors[static_cast<size_t>(channel)];
  const Step& step = step_at(rank, cursor);
  const size_t bytes = slice_bytes(step, cursor);
  if (step.send_peer != kNoPeer) send(rank, step, bytes);
  if (step.recv_peer != kNoPeer) release(rank, step, bytes);
  state.finish = now_;
  ++report_.num_slices;
  cursor.computing = false;
  pass(rank, cursor.pass).slices_done[cursor.step] = ++cursor.slice;
  settle(rank, channel);
  for (int other = 0; other < num_channels_; ++other) list(rank, other);
}

void Simulator::send(int rank, const Step& step, size_t bytes) {
  const int id = link_id(rank, step.send_peer, step.channel);
  Link& link = links_[static_cast<size_t>(id)];
  const double start = link.egress->reserve(now_, static_cast<double>(bytes) / link.rate->bytes_per_s);
  report_.sent_bytes[static_cast<size_t>(topology_.link(rank, step.send_peer))] += bytes;
  push({.time = start + link.rate->alpha_s, .kind = EventKind::FirstByteIn, .link = id, .bytes = bytes});
}

void Simulator::release(int rank, const Step& step, size_t bytes) {
  Link& link = links_[static_cast<size_t>(link_id(step.recv_peer, rank, step.channel))];
  SIXFOLD_CHECK_EQ(link.arrived.front(), bytes, "bytes sent and expected, step " + to_string(step));
  link.arrived.erase(link.arrived.begin());
  --link.occupied;
  list(link.sender, link.channel);
}

void Simulator::push(Event event) {
  event.sequence = num_events_++;
  events_.push(event);
}

void Simulator::handle(const Event& event) {
  if (event.kind == EventKind::ComputeEnds) {
    end_slice(event.rank, event.channel);
    return;
  }
  Link& link = links_[static_cast<size_t>(event.link)];
  if (event.kind == EventKind::FirstByteIn) {
    const double duration = static_cast<double>(event.bytes) / link.rate->bytes_per_s;
    push({.time = link.ingress->reserve(now_, duration) + duration,
          .kind = EventKind::Arrives,
          .link = event.link,
          .bytes = event.bytes});
  } else {
    link.arrived.push_back(event.bytes);
    list(link.receiver, link.channel);
  }
}

CostReport Simulator::run() {
  for (int rank = 0; rank < call_.size && num_passes_ > 0; ++rank) {
    for (int channel = 0; channel < num_channels_; ++channel) {
      settle(rank, channel);
      list(rank, channel);
    }
  }
  take_turns();
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    handle(event);
    take_turns();
  }
  for (RankState& state : ranks_) {
    for (const Cursor& cursor : state.cursors) SIXFOLD_CHECK(cursor.done, "the schedules deadlock");
    report_.finish_s.push_back(state.finish);
    report_.seconds = std::max(report_.seconds, state.finish);
  }
  return std::move(report_);
}

}  // namespace

CostReport simulate(const Call& call, const std::function<Schedule(const Call&)>& builder, const LinkShape& links,
                    size_t element_bytes, size_t pass_count, const Profile& profile) {
  check_profile(profile);
  SIXFOLD_CHECK(links.num_slots >= 2 && element_bytes >= 1 && links.slot_bytes >= element_bytes,
                "links have two slots or more that hold an element");
  SIXFOLD_CHECK_LE(size_t{1}, pass_count, "elements of a pass");
  return Simulator(call, builder, links, element_bytes, pass_count, profile).run();
}

}  // namespace sixfold::comm
