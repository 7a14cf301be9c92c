// ProcessIdentity: which process a rank is, so that others of its host can tell whether it still runs.
#pragma once

#include <cstdint>

namespace sixfold::comm {

/// All zero: unknown.
struct ProcessIdentity {
  int64_t pid = 0;
  uint64_t start_ticks = 0;    // since boot: tells a process from a later one with the same number
  uint64_t pid_namespace = 0;  // where the number is valid

  /// Of the calling process.
  static ProcessIdentity own();
  /// True when the process has surely ended: it exists no more, has left nothing but its exit status (a zombie), or its
  /// number belongs to another by now. False too where this process cannot tell, as from another PID namespace.
  /// A few system calls.
  bool has_ended() const;
};

}  // namespace sixfold::comm
