#include "runtime/comm/observe/flight_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

using Word = std::atomic<uint64_t>;

constexpr uint64_t kNames = 1024;  // an operation needs two, so records outlive their names only among new groups
constexpr float kNotYet = -1;

// One cache line, all of it written when an operation is issued.
struct alignas(64) Entry {
  Word stamp;  // number + 1; 0 while it is written
  Word sequence;
  Word signature[2];
  Word names;  // low half: group, high half: tag; places in the table of names
  std::atomic<double> issued;
  std::atomic<float> started_after, done_after;  // seconds after `issued`, or kNotYet
  std::atomic<int32_t> peer;
};
static_assert(sizeof(Entry) == 64, "one cache line");
static_assert(std::atomic<double>::is_always_lock_free, "shared between processes");

struct NameEntry {
  Word stamp;  // place + 1, its low half; 0 while it is written
  Word words[FixedName::kWords];
};

// With release, so that whoever reads a new word also sees that the old stamp is gone.
void store(Word* words, const FixedName& name) {
  for (size_t i = 0; i < FixedName::kWords; ++i) words[i].store(name.words[i], std::memory_order_release);
}

FixedName load(const Word* words) {
  FixedName name;
  for (size_t i = 0; i < FixedName::kWords; ++i) name.words[i] = words[i].load(std::memory_order_acquire);
  return name;
}

FixedName find_name(const NameEntry* table, uint32_t place) {
  const NameEntry& entry = table[place % kNames];
  const uint32_t stamp = place + 1;
  if (entry.stamp.load(std::memory_order_acquire) != stamp) return FixedName("?");
  const FixedName name = load(entry.words);
  return entry.stamp.load(std::memory_order_acquire) == stamp ? name : FixedName("?");
}

std::optional<OperationRecord> read(const Entry& entry, const NameEntry* table) {
  const uint64_t stamp = entry.stamp.load(std::memory_order_acquire);
  if (stamp == 0) return std::nullopt;
  OperationRecord record;
  record.number = stamp - 1;
  const uint64_t names = entry.names.load(std::memory_order_acquire);
  record.operation.group = find_name(table, static_cast<uint32_t>(names));
  record.operation.tag = find_name(table, static_cast<uint32_t>(names >> 32));
  record.operation.signature = Signature::unpack(
      {entry.signature[0].load(std::memory_order_acquire), entry.signature[1].load(std::memory_order_acquire)});
  record.operation.sequence = entry.sequence.load(std::memory_order_acquire);
  record.operation.peer = entry.peer.load(std::memory_order_acquire);
  record.issued_s = entry.issued.load(std::memory_order_acquire);
  const float started_after = entry.started_after.load(std::memory_order_acquire);
  const float done_after = entry.done_after.load(std::memory_order_acquire);
  if (started_after >= 0) record.started_s = record.issued_s + started_after;
  if (done_after >= 0) record.done_s = record.issued_s + done_after;
  if (entry.stamp.load(std::memory_order_acquire) != stamp) return std::nullopt;
  return record;
}

/// Of an operation that was issued earlier: `after` it.
void set_time(Entry& entry, std::atomic<float>& after, double now_s) {
  after.store(static_cast<float>(now_s - entry.issued.load(std::memory_order_relaxed)), std::memory_order_release);
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
  NameEntry names[kNames];
  Entry entries[kRecordedOperations];
};

std::string format_seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", seconds);
  return text;
}

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

/// Writes the name where it is not in the table, or so long that others may take its place soon.
uint32_t FlightRecorder::place_of(const RecordedName& name) {
  if (name.place_ != 0 && next_place_ - name.place_ < kNames / 2) return static_cast<uint32_t>(name.place_ - 1);
  NameEntry& entry = own_->names[next_place_ % kNames];
  entry.stamp.store(0, std::memory_order_relaxed);
  store(entry.words, name.name_);
  name.place_ = ++next_place_;
  entry.stamp.store(static_cast<uint32_t>(name.place_), std::memory_order_release);
  return static_cast<uint32_t>(name.place_ - 1);
}

uint64_t FlightRecorder::issue(const RecordedName& group, const RecordedName& tag, const Signature& signature,
                               uint64_t sequence, int peer, double now_s) {
  const uint64_t number = next_number_++;
  const uint64_t names = place_of(group) | static_cast<uint64_t>(place_of(tag)) << 32;
  Entry& entry = own_->entries[number % kRecordedOperations];
  const auto words = signature.pack();
  entry.stamp.store(0, std::memory_order_relaxed);
  entry.sequence.store(sequence, std::memory_order_release);
  entry.signature[0].store(words[0], std::memory_order_release);
  entry.signature[1].store(words[1], std::memory_order_release);
  entry.names.store(names, std::memory_order_release);
  entry.issued.store(now_s, std::memory_order_release);
  entry.started_after.store(kNotYet, std::memory_order_release);
  entry.done_after.store(kNotYet, std::memory_order_release);
  entry.peer.store(peer, std::memory_order_release);
  entry.stamp.store(number + 1, std::memory_order_release);
  __builtin_prefetch(&own_->entries[next_number_ % kRecordedOperations], 1);
  return number;
}

void FlightRecorder::start(uint64_t number, double now_s) {
  // Another operation may have its place by now.
  Entry& entry = own_->entries[number % kRecordedOperations];
  if (number + kRecordedOperations >= next_number_) set_time(entry, entry.started_after, now_s);
}

void FlightRecorder::finish(uint64_t number, double now_s) {
  Entry& entry = own_->entries[number % kRecordedOperations];
  if (number + kRecordedOperations >= next_number_) set_time(entry, entry.done_after, now_s);
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
  own_->left.store(now_s, std::memory_order_relaxed);
  own_->state.store(Slot::kLeft, std::memory_order_release);
}

bool FlightRecorder::in_own_process() const {
  return getpid() == pid_;
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
           format_seconds(now_s - since);
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
      if (auto record = read(entry, slot_of(i).names)) snapshot.records.push_back(*record);
    }
    std::sort(snapshot.records.begin(), snapshot.records.end(),
              [](const OperationRecord& a, const OperationRecord& b) { return a.number < b.number; });
  }
  return ranks;
}

}  // namespace sixfold::comm
