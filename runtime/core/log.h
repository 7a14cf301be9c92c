// Log lines of a rank, written by spdlog to stderr, so that stdout stays the program's own: "[rank 2] error: text".
//
// spdlog stays behind this header: its own is the heaviest of the project to compile.
#pragma once

#include <string>

namespace sixfold {

void log_info(const std::string& text);
void log_warn(const std::string& text);
void log_error(const std::string& text);

/// Gives the calling thread's log lines the prefix "[rank N]". Called by each rank's thread once.
void set_log_rank(int rank);

/// trace, debug, info, warn, error or off; for all ranks of the process. Throws ConfigError for anything else.
void set_log_level(const std::string& level);

}  // namespace sixfold
