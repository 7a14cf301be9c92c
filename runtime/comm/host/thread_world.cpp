// ThreadWorld: ranks are threads of one process. For unit tests, and for whoever has no MPI.
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>

#include "runtime/comm/host/host_world.h"
#include "runtime/core/log.h"

namespace sixfold::comm {

namespace {

/// Regions by key, made by whoever comes first and kept until the World ends or all members have let go.
class ThreadRegions final : public RegionProvider {
 public:
  std::shared_ptr<SharedRegion> open(const std::string& key, size_t bytes, const std::vector<int>& members) override {
    std::lock_guard lock(mutex_);
    Entry& entry = entries_[key];
    if (entry.num_opened == 0) entry.region = SharedRegion::anonymous(bytes);
    std::shared_ptr<SharedRegion> region = entry.region;
    // With the last member the map lets go: then the region lives as long as its users.
    if (++entry.num_opened == members.size()) entries_.erase(key);
    return region;
  }

 private:
  struct Entry {
    std::shared_ptr<SharedRegion> region;
    size_t num_opened = 0;
  };
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

}  // namespace

void run_threads(const WorldOptions& options, const std::function<void(World&)>& body) {
  const int size = options.num_ranks;
  AbortState abort{};
  ThreadRegions regions;
  Meetings meetings;
  std::vector<int> everyone(static_cast<size_t>(size));
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto flight = SharedRegion::anonymous(FlightRecorder::region_bytes(everyone.size()));
  const auto bells = SharedRegion::anonymous(Doorbells::region_bytes(everyone.size()));
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  const unsigned cores = std::thread::hardware_concurrency();

  const auto run_rank = [&](int rank) {
    set_log_rank(rank);
    FlightRecorder recorder(flight, rank, everyone);
    Doorbells doorbells(bells, rank, everyone);
    Failure failure(abort, nullptr, recorder, doorbells, options.flight_recorder_dir);
    try {
      HostWorld world(
          options, {rank, size, 0, "threads", &failure, &regions, &doorbells, static_cast<unsigned>(size) > cores, size,
                    true, Topology::one_node(size), Topology::one_node(size), nullptr, &meetings});
      run_body(body, world, failure);
    } catch (...) {
      errors[static_cast<size_t>(rank)] = std::current_exception();
      raise_current(failure);  // one from outside the body
    }
    recorder.leave(seconds_now());
  };

  std::vector<std::thread> threads;
  std::string refused;
  try {
    for (int rank = 0; rank < size; ++rank) threads.emplace_back(run_rank, rank);
  } catch (const std::system_error& error) {
    refused = "--ranks " + std::to_string(size) + ": the system starts no more than " + std::to_string(threads.size()) +
              " threads (" + error.what() + ")";
    abort.set(static_cast<int>(threads.size()), refused);  // the ranks that run wait for the missing ones
  }
  for (std::thread& thread : threads) thread.join();
  if (!refused.empty()) throw ConfigError(refused);
  // The failure that came first is the cause; the others' errors follow from it.
  if (abort.is_set() && errors[static_cast<size_t>(abort.rank)]) {
    std::rethrow_exception(errors[static_cast<size_t>(abort.rank)]);
  }
}

}  // namespace sixfold::comm
