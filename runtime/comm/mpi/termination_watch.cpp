#include "runtime/comm/mpi/termination_watch.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

// The failed rank's own thread says its part meanwhile; mpirun kills after one second.
constexpr auto kLastWords = std::chrono::milliseconds(800);

// A handler can reach nothing but globals.
std::atomic<int> pipe_end{-1};
std::atomic<pid_t> owner{0};
struct sigaction former;

void restore_and_raise() {
  signal(SIGTERM, SIG_DFL);
  raise(SIGTERM);
}

void on_sigterm(int) {
  const int saved = errno;
  if (getpid() != owner.load()) {
    restore_and_raise();  // takes effect when the handler returns
  } else {
    const char byte = 't';
    [[maybe_unused]] const ssize_t written = write(pipe_end.load(), &byte, 1);
  }
  errno = saved;
}

}  // namespace

TerminationWatch::TerminationWatch(std::function<void()> on_signal) : on_signal_(std::move(on_signal)) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw CommError(std::string("cannot open a pipe: ") + std::strerror(errno));
  read_end_ = ends[0];
  write_end_ = ends[1];
  pipe_end = write_end_;
  owner = getpid();
  thread_ = std::thread([this] { watch(); });
  struct sigaction action {};
  action.sa_handler = on_sigterm;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, &former);
}

TerminationWatch::~TerminationWatch() {
  sigaction(SIGTERM, &former, nullptr);
  pipe_end = -1;
  close(write_end_);  // the thread reads the end of the pipe
  thread_.join();
  close(read_end_);
}

void TerminationWatch::watch() {
  // Signals are the other threads' matter.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  char byte = 0;
  ssize_t length = 0;
  do {
    length = read(read_end_, &byte, 1);
  } while (length < 0 && errno == EINTR);
  if (length <= 0) return;
  on_signal_();
  std::this_thread::sleep_for(kLastWords);
  signal(SIGTERM, SIG_DFL);
  kill(getpid(), SIGTERM);
}

}  // namespace sixfold::comm
