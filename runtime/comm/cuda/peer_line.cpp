#include "runtime/comm/cuda/peer_line.h"

#include "runtime/core/error.h"

namespace sixfold::comm {

PeerLine::PeerLine(PeerRunner runner, std::unique_ptr<PeerQueue> queue, const PeerBoard& board,
                   const Topology& topology, int rank, int first_channel, Prepare prepare)
    : runner_(runner),
      queue_(std::move(queue)),
      board_(board),
      topology_(topology),
      rank_(rank),
      first_channel_(first_channel),
      prepare_(std::move(prepare)) {}

void PeerLine::push(PeerPart part) {
  part.work->add_part();
  waiting_.push_back(std::move(part));
}

bool PeerLine::advance() {
  bool moved = false;
  for (bool again = true; again;) {
    again = launch_next();
    again |= run_first();
    moved |= again;
  }
  current_.reset();
  return moved;
}

/// Kernels follow one another on the device; what the host steps through has it alone.
bool PeerLine::launch_next() {
  if (waiting_.empty() || (runner_ == PeerRunner::Stepped && !running_.empty())) return false;
  current_ = waiting_.front().work;
  if (!prepare_(waiting_.front())) return false;
  launch(waiting_.front());
  running_.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
  return true;
}

void PeerLine::launch(PeerPart& part) {
  part.work->engine().watch().start(part.watched, seconds_now());
  if (part.after) queue_->wait_for(*part.after);
  if (part.plan) part.plan->upload(*queue_);
  if (part.plan && runner_ == PeerRunner::Stepped) {
    part.stepper = step(part);
    return;
  }
  if (part.words) queue_->launch(*part.words);
  if (part.plan && !part.plan->is_empty()) queue_->launch(part.plan->launch(part.input, part.output));
  part.mark = queue_->mark();
  part.work->part_launched(part.mark);
}

std::unique_ptr<HostStepper> PeerLine::step(const PeerPart& part) {
  const PeerPlan& plan = *part.plan;
  const ProgramLaunch launch = plan.launch(part.input, part.output);
  const auto link_of = [this, &plan](uint32_t channel, uint8_t connection, bool sends) {
    const int peer = plan.peer_of(channel, connection, sends);
    PeerBoard::Flags& flags =
        board_.flags(sends ? rank_ : peer, sends ? peer : rank_, first_channel_ + static_cast<int>(channel));
    return HostStepper::Link{&flags.tail, &flags.head, &moved_[{peer, channel, sends}]};
  };
  const auto issue = [this, launch, bytes = plan.slot_bytes()](const SliceOrder& slice) {
    queue_->launch(launch, slice, bytes);
    return queue_->mark();
  };
  return std::make_unique<HostStepper>(plan.image(), link_of, issue);
}

bool PeerLine::run_first() {
  if (running_.empty()) return false;
  PeerPart& part = running_.front();
  current_ = part.work;
  const bool moved = part.stepper && part.stepper->advance();
  if (part.stepper ? !part.stepper->done() : !part.mark->done()) return moved;
  // Whoever entered it at the same time may have seen nothing yet when it looked.
  const std::string problem = part.work->disagreement();
  if (!problem.empty()) throw CommError(problem);
  ProgressEngine& engine = part.work->engine();
  engine.watch().finish(part.watched, seconds_now(), sent(part), part.work->all_there_s(),
                        engine.awaited() == part.work.get());
  part.work->part_done();
  running_.pop_front();
  return true;
}

SentBytes PeerLine::sent(const PeerPart& part) const {
  SentBytes sent = kNothingSent;
  const uint64_t bytes =
      part.plan ? part.plan->sent_bytes() : low_latency_sent_bytes(part.words->arguments, dtype_bytes(part.dtype));
  if (part.to >= 0) {
    sent.add(bytes, topology_.link(rank_, part.to));
    return sent;
  }
  sent.add(bytes, LinkClass::Intra);  // of a collective, it is not known to whom
  if (topology_.spans_nodes()) sent.inter = -1;
  return sent;
}

std::shared_ptr<PeerWork> PeerLine::outstanding() const {
  return !running_.empty() ? running_.front().work : waiting_.empty() ? nullptr : waiting_.front().work;
}

}  // namespace sixfold::comm
