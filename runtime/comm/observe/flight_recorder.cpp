#include "runtime/comm/observe/flight_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

using Word = std::atomic<uint64_t>;

// Two cache lines a record.
struct alignas(64) Entry {
  Word stamp;  // number + 1; 0 while it is written
  Word sequence;
  Word signature[2];
  Word peer;
  std::atomic<double> issued, started, done;
  Word group[FixedName::kWords], tag[FixedName::kWords];
};
static_assert(std::atomic<double>::is_always_lock_free, "shared between processes");

// With release, so that whoever reads a new word also sees that the old stamp is gone.
void store(Word* words, const FixedName& name) {
  for (size_t i = 0; i < FixedName::kWords; ++i) words[i].store(name.words[i], std::memory_order_release);
}

FixedName load(const Word* words) {
  FixedName name;
  for (size_t i = 0; i < FixedName::kWords; ++i) name.words[i] = words[i].load(std::memory_order_acquire);
  return name;
}

std::optional<OperationRecord> read(const Entry& entry) {
  const uint64_t stamp = entry.stamp.load(std::memory_order_acquire);
  if (stamp == 0) return std::nullopt;
  OperationRecord record;
  record.number = stamp - 1;
  record.operation.group = load(entry.group);
  record.operation.tag = load(entry.tag);
  record.operation.signature = Signature::unpack(
      {entry.signature[0].load(std::memory_order_acquire), entry.signature[1].load(std::memory_order_acquire)});
  record.operation.sequence = entry.sequence.load(std::memory_order_acquire);
  record.operation.peer = static_cast<int>(entry.peer.load(std::memory_order_acquire));
  record.issued_s = entry.issued.load(std::memory_order_acquire);
  record.started_s = entry.started.load(std::memory_order_acquire);
  record.done_s = entry.done.load(std::memory_order_acquire);
  if (entry.stamp.load(std::memory_order_acquire) != stamp) return std::nullopt;
  return record;
}

std::string seconds(double s) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", s);
  return text;
}

}  // namespace

struct FlightRecorder::Slot {
  enum State : uint64_t { kNotStarted, kRunning, kLeft };
  alignas(64) Word state;
  Word pid, start_ticks, pid_namespace;  // written before kRunning
  std::atomic<double> left;
  alignas(64) Word waiting_for;
  std::atomic<double> waiting_since;  // 0: not waiting
  alignas(64) Word section_name[FixedName::kWords];
  std::atomic<double> section_since;  // 0: in none
  Entry entries[kRecordedOperations];
};

std::string Operation::describe() const {
  const bool sends = signature.primitive == Primitive::Send, receives = signature.primitive == Primitive::Recv;
  std::string text(primitive_name(signature.primitive));
  if (sends || receives) text += (sends ? " to rank " : " from rank ") + std::to_string(peer);
  text += " #" + std::to_string(sequence) + " (" + tag.str() + ") of group " + group.str();
  const std::string all = to_string(signature);
  return text + all.substr(all.find(','));  // the primitive is said already
}

std::string OperationRecord::state() const {
  if (done_s > 0) return "done";
  return started_s > 0 ? "started" : "issued";
}

const OperationRecord* RankSnapshot::under_way() const {
  const auto find = [this](auto&& wanted) {
    const auto found = std::find_if(records.begin(), records.end(), wanted);
    return found == records.end() ? nullptr : &*found;
  };
  if (waiting_since_s > 0) {
    return find([this](const OperationRecord& record) { return record.number == waiting_for && record.done_s == 0; });
  }
  return find([](const OperationRecord& record) { return record.done_s == 0; });
}

const OperationRecord* RankSnapshot::last_done() const {
  const OperationRecord* last = nullptr;
  for (const OperationRecord& record : records) {
    if (record.done_s > 0 && (last == nullptr || record.done_s >= last->done_s)) last = &record;
  }
  return last;
}

size_t FlightRecorder::region_bytes(size_t num_mates) {
  return num_mates * sizeof(Slot);
}

FlightRecorder::FlightRecorder(std::shared_ptr<SharedRegion> region, int rank, std::vector<int> mates)
    : region_(std::move(region)), rank_(rank), mates_(std::move(mates)), own_(nullptr), pid_(getpid()) {
  SIXFOLD_CHECK_LE(region_bytes(mates_.size()), region_->bytes(), "region of the flight recorder");
  const std::optional<size_t> own = index_of(rank);
  SIXFOLD_CHECK(own.has_value(), "a rank is its own mate");
  own_ = &slot_of(*own);
  const ProcessIdentity process = ProcessIdentity::own();
  own_->pid.store(static_cast<uint64_t>(process.pid), std::memory_order_relaxed);
  own_->start_ticks.store(process.start_ticks, std::memory_order_relaxed);
  own_->pid_namespace.store(process.pid_namespace, std::memory_order_relaxed);
  own_->state.store(Slot::kRunning, std::memory_order_release);
}

FlightRecorder::~FlightRecorder() = default;

FlightRecorder::Slot& FlightRecorder::slot_of(size_t mate) const {
  return reinterpret_cast<Slot*>(region_->data())[mate];
}

std::optional<size_t> FlightRecorder::index_of(int rank) const {
  const auto found = std::find(mates_.begin(), mates_.end(), rank);
  if (found == mates_.end()) return std::nullopt;
  return static_cast<size_t>(found - mates_.begin());
}

uint64_t FlightRecorder::issue(const Operation& operation, double now_s) {
  const uint64_t number = next_number_++;
  Entry& entry = own_->entries[number % kRecordedOperations];
  const auto words = operation.signature.pack();
  entry.stamp.store(0, std::memory_order_relaxed);
  entry.sequence.store(operation.sequence, std::memory_order_release);
  entry.signature[0].store(words[0], std::memory_order_release);
  entry.signature[1].store(words[1], std::memory_order_release);
  entry.peer.store(static_cast<uint64_t>(operation.peer), std::memory_order_release);
  entry.issued.store(now_s, std::memory_order_release);
  entry.started.store(0, std::memory_order_release);
  entry.done.store(0, std::memory_order_release);
  store(entry.group, operation.group);
  store(entry.tag, operation.tag);
  entry.stamp.store(number + 1, std::memory_order_release);
  return number;
}

void FlightRecorder::start(uint64_t number, double now_s) {
  // Another operation may have its place by now.
  Entry& entry = own_->entries[number % kRecordedOperations];
  if (number + kRecordedOperations >= next_number_) entry.started.store(now_s, std::memory_order_release);
}

void FlightRecorder::finish(uint64_t number, double now_s) {
  Entry& entry = own_->entries[number % kRecordedOperations];
  if (number + kRecordedOperations >= next_number_) entry.done.store(now_s, std::memory_order_release);
}

void FlightRecorder::wait(uint64_t number, double since_s) {
  own_->waiting_for.store(number, std::memory_order_relaxed);
  own_->waiting_since.store(since_s, std::memory_order_release);
}

void FlightRecorder::end_wait() {
  own_->waiting_since.store(0, std::memory_order_release);
}

void FlightRecorder::begin_section(const std::string& name, double now_s) {
  if (section_depth_++ > 0) return;
  store(own_->section_name, FixedName(name));
  own_->section_since.store(now_s, std::memory_order_release);
}

void FlightRecorder::end_section() {
  SIXFOLD_CHECK_LT(0, section_depth_, "end_section without begin_section");
  if (--section_depth_ == 0) own_->section_since.store(0, std::memory_order_release);
}

void FlightRecorder::leave(double now_s) {
  if (getpid() != pid_) return;
  own_->left.store(now_s, std::memory_order_relaxed);
  own_->state.store(Slot::kLeft, std::memory_order_release);
}

bool FlightRecorder::has_left(int rank) const {
  const std::optional<size_t> mate = index_of(rank);
  return mate && slot_of(*mate).state.load(std::memory_order_acquire) == Slot::kLeft;
}

std::vector<int> FlightRecorder::gone() const {
  std::vector<int> ranks;
  for (size_t i = 0; i < mates_.size(); ++i) {
    if (mates_[i] != rank_ && snapshot_of(i).presence == RankSnapshot::Presence::Gone) ranks.push_back(mates_[i]);
  }
  return ranks;
}

std::string FlightRecorder::section_elsewhere(double now_s) const {
  for (size_t i = 0; i < mates_.size(); ++i) {
    if (mates_[i] == rank_) continue;
    const Slot& slot = slot_of(i);
    const double since = slot.section_since.load(std::memory_order_acquire);
    if (since == 0 || slot.state.load(std::memory_order_acquire) != Slot::kRunning) continue;
    return "rank " + std::to_string(mates_[i]) + " is in section '" + load(slot.section_name).str() + "' since " +
           seconds(now_s - since);
  }
  return "";
}

RankSnapshot FlightRecorder::snapshot_of(size_t mate) const {
  const Slot& slot = slot_of(mate);
  RankSnapshot snapshot;
  snapshot.rank = mates_[mate];
  const uint64_t state = slot.state.load(std::memory_order_acquire);
  if (state == Slot::kNotStarted) return snapshot;
  snapshot.process = {static_cast<int64_t>(slot.pid.load(std::memory_order_relaxed)),
                      slot.start_ticks.load(std::memory_order_relaxed),
                      slot.pid_namespace.load(std::memory_order_relaxed)};
  if (state == Slot::kLeft) {
    snapshot.presence = RankSnapshot::Presence::Left;
    snapshot.left_s = slot.left.load(std::memory_order_relaxed);
  } else {
    const bool ended = snapshot.process.pid != pid_ && snapshot.process.has_ended();
    // It may have left, and then ended, since the state was read.
    const bool gone = ended && slot.state.load(std::memory_order_acquire) == Slot::kRunning;
    snapshot.presence = gone ? RankSnapshot::Presence::Gone : RankSnapshot::Presence::Running;
  }
  snapshot.waiting_since_s = slot.waiting_since.load(std::memory_order_acquire);
  snapshot.waiting_for = slot.waiting_for.load(std::memory_order_relaxed);
  snapshot.section_since_s = slot.section_since.load(std::memory_order_acquire);
  if (snapshot.section_since_s > 0) snapshot.section = load(slot.section_name).str();
  return snapshot;
}

std::vector<RankSnapshot> FlightRecorder::snapshot() const {
  std::vector<RankSnapshot> ranks;
  for (size_t i = 0; i < mates_.size(); ++i) {
    RankSnapshot& snapshot = ranks.emplace_back(snapshot_of(i));
    for (const Entry& entry : slot_of(i).entries) {
      if (auto record = read(entry)) snapshot.records.push_back(*record);
    }
    std::sort(snapshot.records.begin(), snapshot.records.end(),
              [](const OperationRecord& a, const OperationRecord& b) { return a.number < b.number; });
  }
  return ranks;
}

}  // namespace sixfold::comm
