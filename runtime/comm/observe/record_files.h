// The records of all ranks (records.h) as files: JSON lines for programs, a trace for people.
//
// --comm-log: one object an operation and rank, in the order of issue by rank 0's clock:
//   {"step","rank","group","tag","primitive","algorithm","backend","dtype","count","bytes","sent_intra_bytes",
//    "sent_inter_bytes","enqueue_s","start_s","end_s","wait_ms","exposed_ms","exposed_wait_ms",
//    "exposed":[[start_s,end_s],..],"peer","lane","sequence"}
// Terms are those of comm_log.h; peer is a rank of the World; step is 0 outside of steps: at start-up, in validation.
// null: not known (what MPI and NCCL send and wait for; on a GPU, exposed_wait_ms), or not had (an algorithm, by
// messages, MPI and NCCL; peer and lane, by collectives; an end, by what was under way when the log was gathered).
// Where a rank's memory for records was full, a last line {"rank","dropped"} says how many are missing.
//
// --trace: Chrome's Trace Event Format as a JSON object, which Perfetto and chrome://tracing open. A process is a rank;
// its threads are tracks: "compute" (forward, backward, optimizer), "standing still" (exposed intervals) and one or
// more a group for collectives, and for sends and receives of each lane. Slices are complete events (ph X) that nest;
// what is null in the log, their arguments leave out. Metadata events (M) name processes and threads; flow events (s,
// f) lead from each send to its receive. Times are microseconds since the first event. Source: "Trace Event Format",
// the Chromium project's document.
#pragma once

#include <ostream>
#include <span>
#include <string>

#include "runtime/comm/observe/records.h"

namespace sixfold::comm {

void write_comm_log(std::ostream& out, std::span<const RankRecords> ranks);
void write_trace(std::ostream& out, std::span<const RankRecords> ranks);

/// What a user has asked for; empty: no such file.
struct RecordFiles {
  std::string comm_log, trace;
  bool any() const { return !comm_log.empty() || !trace.empty(); }
};
/// Gathers the records, and rank 0 writes the files. Collective over the World, as gather_records(). Throws ConfigError
/// that names the flag and the file when one cannot be written.
void write_record_files(const RecordFiles& files, World& world, const ClockOffset& offset);

/// What a rank records at most where files are asked for.
inline constexpr size_t kCommLogBytes = size_t{128} << 20;

}  // namespace sixfold::comm
