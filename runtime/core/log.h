// Log lines of a rank, through spdlog: "[rank 2] text" on stderr, so that stdout stays the program's own.
#pragma once

#include <spdlog/spdlog.h>

namespace sixfold {

/// The logger of the calling thread's rank; without a rank prefix until set_log_rank() was called on this thread.
spdlog::logger& log();

/// Gives the calling thread's log lines the prefix "[rank N]". Called by each rank's thread once.
void set_log_rank(int rank);

/// trace, debug, info, warn, error or off; for all ranks of the process. Throws ConfigError for anything else.
void set_log_level(const std::string& level);

}  // namespace sixfold
