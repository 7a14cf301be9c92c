// What a program can know to be impossible before it starts: files that cannot be written, memory that is not there.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string>

#include "runtime/core/error.h"

namespace sixfold::examples {

/// Throws ConfigError that names `flag`. A file that can only be written at the end should not fail there, and must not
/// replace what is no output of ours. An empty path is none.
inline void check_writable(const std::string& flag, const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return;
  const fs::path parent = fs::absolute(path).parent_path();
  const fs::file_status status = fs::symlink_status(path);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    throw ConfigError(flag + " " + path + ": exists and is no regular file");
  }
  // Tried, since a folder's permissions are not all that there is: nobody makes a file in /proc. A new file gets a name
  // of its own, for other ranks try at the same time.
  std::string probe = (parent / ".sixfold-XXXXXX").string();
  const bool exists = fs::exists(status);
  const int file = exists ? open(path.c_str(), O_WRONLY | O_CLOEXEC) : mkostemp(probe.data(), O_CLOEXEC);
  if (file < 0) {
    throw ConfigError(flag + " " + path + ": no file can be written there (in " + parent.string() + ": " +
                      std::strerror(errno) + "); allowed is a file in a folder that can be written to");
  }
  close(file);
  if (!exists) unlink(probe.c_str());
}

/// Throws ConfigError with `what` and both numbers where the machine has less memory than `bytes`.
inline void check_memory(const std::string& what, double bytes) {
  const double available = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (bytes <= available) return;
  const auto gib = [](double b) {
    std::ostringstream text;
    text << std::ceil(b / (1u << 30)) << " GiB";
    return text.str();
  };
  throw ConfigError(what + ": needs about " + gib(bytes) + " of memory, this machine has " + gib(available));
}

}  // namespace sixfold::examples
