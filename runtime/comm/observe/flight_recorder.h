// FlightRecorder: the last operations of each rank and what it is doing now, in memory that all ranks of a host read.
// When something hangs or fails, one rank can say what all were doing.
//
// Each rank writes its own slot: a ring of kRecordedOperations records, one for each collective, send and receive, a
// ring of names that they refer to, and a few words on what it waits for. Writing takes a few stores to one cache line,
// no lock, no allocation and no system call. Readers look at any time; a record that is being overwritten meanwhile is
// left out (a sequence lock, as in SignatureRing).
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/host/shared_region.h"
#include "runtime/comm/host/signature.h"
#include "runtime/comm/observe/fixed_name.h"
#include "runtime/comm/observe/process_identity.h"

namespace sixfold::comm {

inline constexpr size_t kRecordedOperations = 256;

/// A name that many operations have, such as a tag: the recorder writes it once and lets records refer to it. Owned by
/// whoever issues the operations; used with one recorder.
class RecordedName {
 public:
  RecordedName() = default;
  explicit RecordedName(std::string_view text, FixedName::Keep keep = FixedName::Keep::Head) : name_(text, keep) {}

 private:
  friend class FlightRecorder;
  FixedName name_;
  mutable uint64_t place_ = 0;  // in the recorder's table of names, + 1
};

/// An operation of a record.
struct Operation {
  FixedName group, tag;
  Signature signature;    // primitive, count, dtype, op, root and algorithm; Send and Recv for point-to-point
  uint64_t sequence = 0;  // among the collectives of the group, or the messages of the peer, direction and lane
  int peer = -1;          // rank of the group, point-to-point only

  /// "all_reduce #17 (dp.grads) of group world, count 4096, f32, sum, root 0, ring"
  std::string describe() const;
};

/// As reports tell it: "1.5 s".
std::string format_seconds(double seconds);

/// Times are seconds of the host's steady clock (seconds_now()); 0: not yet.
struct OperationRecord {
  Operation operation;
  uint64_t number = 0;  // of the rank's operations, from 0
  double issued_s = 0, started_s = 0, done_s = 0;

  /// "issued", "started" or "done".
  std::string state() const;
};

/// What one rank was doing at a moment.
struct RankSnapshot {
  enum class Presence : uint8_t { NotStarted, Running, Left, Gone };

  int rank = 0;  // of the World
  Presence presence = Presence::NotStarted;
  double left_s = 0;
  ProcessIdentity process;
  double waiting_since_s = 0;            // 0: it does not wait, or not for long enough to say so
  uint64_t waiting_for = 0;              // the record that it waits for; kRecordedOperations later, it is forgotten
  std::string section;                   // empty: in none
  double section_since_s = 0;            // of the outermost section
  std::vector<OperationRecord> records;  // oldest first

  /// The record of an operation that it waits for, or else of the oldest that is not done; nullptr where there is none.
  const OperationRecord* under_way() const;
  /// The record that was done last.
  const OperationRecord* last_done() const;
};

/// One per rank, which alone calls what writes; made before and destroyed after all that communicates.
class FlightRecorder {
 public:
  /// `region`: zeroed at first, region_bytes(mates.size()) long, shared by `mates`, the ranks (of the World) that share
  /// memory, of which `rank` is one. Says that this rank is there.
  FlightRecorder(std::shared_ptr<SharedRegion> region, int rank, std::vector<int> mates);
  /// Does nothing: a rank that ends its work calls leave().
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  static size_t region_bytes(size_t num_mates);

  /// As in Operation. Returns the number of the record. Times are seconds_now(), which callers have at hand.
  uint64_t issue(const RecordedName& group, const RecordedName& tag, const Signature& signature, uint64_t sequence,
                 int peer, double now_s);
  void start(uint64_t number, double now_s);
  void finish(uint64_t number, double now_s);
  /// The rank waits for record `number`, and has seen nothing move since `since_s` (> 0).
  void wait(uint64_t number, double since_s);
  void end_wait();
  /// Sections nest; the outermost one's name is kept.
  void begin_section(const std::string& name, double now_s);
  void end_section();
  /// The rank has ended its work: whoever needs it from now on waits in vain.
  void leave(double now_s);
  /// False in a forked child, which shares the memory and is not the rank. A system call.
  bool in_own_process() const;

  int rank() const { return rank_; }
  const std::vector<int>& mates() const { return mates_; }
  /// Of a mate (rank of the World). False for ranks of other hosts, which cannot be seen.
  bool has_left(int rank) const;
  /// Mates whose process has ended before they left.
  std::vector<int> gone() const;
  /// Another mate that is in a section now: "rank 0 is in section 'save' since 3.1 s"; empty where there is none.
  std::string section_elsewhere(double now_s) const;
  /// Of all mates, in order of rank.
  std::vector<RankSnapshot> snapshot() const;

 private:
  struct Slot;

  uint32_t place_of(const RecordedName& name);
  Slot& slot_of(size_t mate) const;
  std::optional<size_t> index_of(int rank) const;
  RankSnapshot snapshot_of(size_t mate) const;

  std::shared_ptr<SharedRegion> region_;
  int rank_;
  std::vector<int> mates_;
  Slot* own_;
  uint64_t next_number_ = 0, next_place_ = 0;
  int section_depth_ = 0;
  int64_t pid_;
};

}  // namespace sixfold::comm
