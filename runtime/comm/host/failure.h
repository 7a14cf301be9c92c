// Failure: how a rank that fails tells all others, and says what everyone was doing.
//
//   1. claim the host's AbortState: the first failure is the cause, all later ones follow from it
//   2. take a snapshot of the flight recorder, while the others still are where they were
//   3. publish, and wake who sleeps: from now on every wait on this host throws
//   4. write the report: to the log, and with --flight-recorder DIR the full rings to DIR/flight-recorder.json
//
// On another host, the first rank that hears of it does the same (its file is DIR/flight-recorder-rankN.json), since
// nobody else sees what its ranks were doing.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/host/abort.h"
#include "runtime/comm/host/doorbell.h"
#include "runtime/comm/observe/flight_recorder.h"

namespace sixfold::comm {

class Failure {
 public:
  /// All outlive this. `relay`: nullptr where all ranks are on this host; `folder`: empty, or where the rings go.
  Failure(AbortState& abort, AbortRelay* relay, FlightRecorder& recorder, Doorbells& doorbells, std::string folder);

  enum class Report : uint8_t { Full, None };
  /// Steps 1 to 4; nothing but a short wait for step 3 where another rank was first. Any thread of the rank.
  /// `awaited`: ranks of the World that an operation waited for in vain. Report::None is for what is the user's
  /// mistake.
  void raise(const std::string& reason, const std::vector<int>& awaited = {}, Report report = Report::Full);
  /// Takes it to the other hosts, if this rank was the first. Under the engine's lock (rank_lock.h), or where there is
  /// no engine any more.
  void announce();
  /// Throws the CommError that says who failed and why, where somebody has. As announce().
  void check();

  AbortState& abort() { return abort_; }
  FlightRecorder& recorder() { return recorder_; }
  /// Whether this rank has written a report, which says why its World ends.
  bool has_reported() const { return has_reported_; }

 private:
  void publish(int rank, const std::string& reason);
  std::string text_of_others() const;
  void hear_of(const AbortRelay::Notice& notice);
  void write_report(const std::string& reason, const std::vector<int>& awaited, const std::vector<RankSnapshot>& ranks,
                    const std::string& file);

  AbortState& abort_;
  AbortRelay* relay_;
  FlightRecorder& recorder_;
  Doorbells& doorbells_;
  std::string folder_;
  std::atomic<bool> has_reported_{false};
};

}  // namespace sixfold::comm
