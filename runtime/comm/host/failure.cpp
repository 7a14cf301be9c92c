#include "runtime/comm/host/failure.h"

#include <chrono>
#include <thread>

#include "runtime/comm/host/progress.h"
#include "runtime/comm/observe/flight_report.h"
#include "runtime/core/error.h"
#include "runtime/core/log.h"

namespace sixfold::comm {

namespace {
// How long a rank that was not the first stays where it is, so that the first one's snapshot shows it there.
constexpr double kLookAround = 1.0;
}  // namespace

Failure::Failure(AbortState& abort, AbortRelay* relay, FlightRecorder& recorder, Doorbells& doorbells,
                 std::string folder)
    : abort_(abort), relay_(relay), recorder_(recorder), doorbells_(doorbells), folder_(std::move(folder)) {}

void Failure::raise(const std::string& reason, const std::vector<int>& awaited, Report report) {
  if (!abort_.claim()) {
    const double end = seconds_now() + kLookAround;
    while (!abort_.is_set() && seconds_now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return;
  }
  std::vector<RankSnapshot> ranks;
  if (report == Report::Full) ranks = recorder_.snapshot();
  publish(recorder_.rank(), reason);
  if (report == Report::Full) write_report(reason, awaited, ranks, "flight-recorder.json");
}

void Failure::publish(int rank, const std::string& reason) {
  abort_.publish(rank, reason);
  doorbells_.ring_all();
}

void Failure::write_report(const std::string& reason, const std::vector<int>& awaited,
                           const std::vector<RankSnapshot>& ranks, const std::string& file) {
  const double now = seconds_now();
  if (ranks.size() > 1) {
    log_error(format_report(reason, recorder_.rank(), awaited, ranks, now));
    has_reported_ = true;
  }
  if (folder_.empty()) return;
  try {
    log_error("all recorded operations: " +
              write_flight_file(folder_ + "/" + file, reason, recorder_.rank(), ranks, now));
  } catch (const std::exception& error) {
    log_error(error.what());  // the failure itself matters more
  }
}

void Failure::announce() {
  if (relay_ != nullptr) relay_->announce();
}

std::string Failure::text_of_others() const {
  return "rank " + std::to_string(recorder_.rank()) + ": stopped, because rank " + std::to_string(abort_.rank) +
         " failed: " + abort_.text;
}

void Failure::hear_of(const AbortRelay::Notice& notice) {
  if (!abort_.claim()) return;
  const std::vector<RankSnapshot> ranks = recorder_.snapshot();
  publish(notice.rank, notice.reason);
  write_report(text_of_others(), {}, ranks, "flight-recorder-rank" + std::to_string(recorder_.rank()) + ".json");
}

void Failure::check() {
  if (relay_ != nullptr) {
    if (const auto notice = relay_->poll()) hear_of(*notice);
  }
  if (abort_.is_set()) throw CommError(text_of_others());
}

}  // namespace sixfold::comm
