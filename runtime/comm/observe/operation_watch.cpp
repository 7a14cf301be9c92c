#include "runtime/comm/observe/operation_watch.h"

#include <algorithm>

namespace sixfold::comm {

WatchedGroup OperationWatch::add_group(const std::string& name, const std::vector<int>& members) {
  return {RecordedName(name, FixedName::Keep::Tail), log_ != nullptr ? log_->add_group(name, members) : 0};
}

WatchedOperation OperationWatch::issue(PhasedRow& row, const IssuedOperation& operation, double now_s) {
  WatchedOperation watched;
  watched.row = &row;
  watched.phase = table_.phase();
  CommRow& sums = row.of(watched.phase);
  ++sums.calls;
  sums.bytes += operation.bytes;
  sums.predicted_sent_bytes += operation.predicted_sent_bytes;
  watched.record = recorder_.issue(operation.group.name, operation.tag, operation.signature, operation.sequence,
                                   operation.peer, now_s);
  if (log_ == nullptr) return watched;
  LoggedOperation logged;
  logged.enqueued_s = now_s;
  logged.sequence = operation.sequence;
  logged.count = operation.signature.count;
  logged.bytes = operation.bytes;
  logged.group = operation.group.logged;
  logged.row = sums.id;
  logged.peer = operation.peer;
  logged.lane = static_cast<int16_t>(operation.lane);
  logged.dtype = operation.signature.dtype;
  watched.logged = log_->issue(logged);
  return watched;
}

WatchedOperation OperationWatch::part_of(const WatchedOperation& whole, PhasedRow& row, double predicted_sent_bytes) {
  row.of(whole.phase).predicted_sent_bytes += predicted_sent_bytes;
  WatchedOperation part = whole;
  part.row = &row;
  part.started_s = 0;
  part.is_part = true;
  return part;
}

void OperationWatch::start(WatchedOperation& operation, double now_s) {
  operation.started_s = now_s;
  if (operation.is_part) return;
  recorder_.start(operation.record, now_s);
  table_.start(now_s);
}

void OperationWatch::finish(const WatchedOperation& operation, double now_s, const SentBytes& sent, double there_s,
                            bool is_awaited) {
  add_sent(operation, sent);
  if (operation.is_part) return;
  recorder_.finish(operation.record, now_s);
  table_.end(now_s);
  CommRow& row = operation.row->of(operation.phase);
  row.seconds += now_s - operation.started_s;
  const double until = std::clamp(there_s, operation.started_s, now_s);
  if (there_s > 0) {
    row.wait_seconds += until - operation.started_s;
    const double since = std::max(operation.started_s, still_since_s_);
    if (is_awaited && still_since_s_ > 0 && until > since) late_.push_back({since, until});
  } else {
    for (CommRow& sums : operation.row->sums) sums.knows_waits = false;  // a moment may pass in the other phase
  }
  LoggedOperation* logged = log_ == nullptr ? nullptr : log_->find(operation.logged);
  if (logged == nullptr) return;
  logged->started_s = operation.started_s;
  logged->ended_s = now_s;
  if (there_s > 0) logged->wait_s = until - operation.started_s;
}

void OperationWatch::add_sent(const WatchedOperation& operation, const SentBytes& sent) {
  CommRow& row = operation.row->of(operation.phase);
  row.sent_bytes += static_cast<uint64_t>(std::max<int64_t>(sent.total, 0));
  row.sent_inter_bytes += static_cast<uint64_t>(std::max<int64_t>(sent.inter, 0));
  row.knows_inter &= sent.inter >= 0;
  LoggedOperation* logged = log_ == nullptr ? nullptr : log_->find(operation.logged);
  if (logged == nullptr || sent.inter < 0) return;
  logged->sent_intra_bytes = std::max<int64_t>(logged->sent_intra_bytes, 0) + sent.total - sent.inter;
  logged->sent_inter_bytes = std::max<int64_t>(logged->sent_inter_bytes, 0) + sent.inter;
}

void OperationWatch::expose_stream(const WatchedOperation& operation, CommPhase phase, double seconds) {
  CommRow& row = operation.row->of(phase);
  row.exposed_seconds += seconds;
  row.knows_waits = false;
  LoggedOperation* logged = log_ == nullptr ? nullptr : log_->find(operation.logged);
  if (logged == nullptr) return;
  logged->exposed_s += seconds;
  logged->exposed_wait_s = -1;
}

void OperationWatch::expose(const WatchedOperation& operation, double now_s) {
  if (operation.in_stream) return;
  const double waited = union_length(late_);
  CommRow& row = operation.row->of(table_.phase());
  row.exposed_seconds += now_s - still_since_s_;
  row.exposed_wait_seconds += waited;
  if (log_ != nullptr) log_->expose(operation.logged, still_since_s_, now_s, waited);
}

}  // namespace sixfold::comm
