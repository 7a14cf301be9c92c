#include "runtime/comm/observe/process_identity.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace sixfold::comm {

namespace {

struct ProcessState {
  char state = '?';
  uint64_t start_ticks = 0;
};

/// From /proc/PID/stat (proc(5)); empty where that cannot be read.
std::optional<ProcessState> read_state(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // Field 2 is the name, which may hold anything; it ends with the last parenthesis.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  ProcessState state;
  std::string skipped;
  fields >> state.state;                                       // field 3
  for (int field = 4; field < 22; ++field) fields >> skipped;  // up to field 22, starttime
  fields >> state.start_ticks;
  if (!fields) return std::nullopt;
  return state;
}

uint64_t own_pid_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

}  // namespace

ProcessIdentity ProcessIdentity::own() {
  ProcessIdentity identity;
  identity.pid = getpid();
  if (const auto state = read_state(identity.pid)) identity.start_ticks = state->start_ticks;
  identity.pid_namespace = own_pid_namespace();
  return identity;
}

bool ProcessIdentity::has_ended() const {
  if (pid <= 0 || pid_namespace != own_pid_namespace()) return false;
  if (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return true;
  const auto state = read_state(pid);
  if (!state) return false;
  if (state->state == 'Z' || state->state == 'X') return true;
  return start_ticks != 0 && state->start_ticks != start_ticks;
}

}  // namespace sixfold::comm
