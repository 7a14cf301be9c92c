// TerminationWatch: what a rank does when it is told to end (SIGTERM). mpirun tells all ranks once one of them has
// died, and kills them a second later: time enough to say what they were doing.
//
// The signal's handler does nothing but write to a pipe; a thread that sleeps on the other end does the rest. So a rank
// is heard that computes, or is inside of a call to MPI, as well as one that waits.
#pragma once

#include <functional>
#include <thread>

namespace sixfold::comm {

class TerminationWatch {
 public:
  /// From now on SIGTERM calls `on_signal` on another thread, once, and ends the process (by that signal) a fraction of
  /// a second after it has returned, unless something else does before. At most one at a time in a process. Forked
  /// children keep the system's own reaction. Throws CommError.
  explicit TerminationWatch(std::function<void()> on_signal);
  /// Gives the signal its former handler back.
  ~TerminationWatch();
  TerminationWatch(const TerminationWatch&) = delete;
  TerminationWatch& operator=(const TerminationWatch&) = delete;

 private:
  void watch();

  std::function<void()> on_signal_;
  int read_end_ = -1, write_end_ = -1;
  std::thread thread_;
};

}  // namespace sixfold::comm
