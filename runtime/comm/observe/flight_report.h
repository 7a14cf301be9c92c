// What the ranks of a host were doing when one failed: for people, and as a file.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/observe/flight_recorder.h"

namespace sixfold::comm {

/// A line a rank: where it is, the operation under way, the last one done, and whether it is one of `awaited`, the
/// ranks that the failed operation waited for in vain. `reporter` is the rank that says so; now_s as seconds_now().
std::string format_report(const std::string& reason, int reporter, const std::vector<int>& awaited,
                          const std::vector<RankSnapshot>& ranks, double now_s);

/// Throws ConfigError unless `folder` can be written to; makes it where it is missing. `flag` names it in the text.
void check_flight_folder(const std::string& flag, const std::string& folder);

/// Writes every record of every rank to the JSON file `path`, and returns the path. Times in the file are seconds
/// before the failure. Throws CommError.
std::string write_flight_file(const std::string& path, const std::string& reason, int reporter,
                              const std::vector<RankSnapshot>& ranks, double now_s);

}  // namespace sixfold::comm
