// The clock of all records: steady, and the same for all processes of a host.
#pragma once

#include <chrono>

namespace sixfold::comm {

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace sixfold::comm
