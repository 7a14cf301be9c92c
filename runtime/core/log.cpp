#include "runtime/core/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "runtime/core/error.h"

namespace sixfold {

namespace {
// One for all ranks of the process, so that lines of different threads do not mix. Their prefixes differ by thread,
// which a pattern of spdlog, a property of what they share, cannot say.
spdlog::logger& logger() {
  static const auto logger = [] {
    auto made = std::make_shared<spdlog::logger>("sixfold", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v");
    return made;
  }();
  return *logger;
}
thread_local std::string prefix;
}  // namespace

void log_info(const std::string& text) {
  logger().info(prefix + "info: " + text);
}
void log_warn(const std::string& text) {
  logger().warn(prefix + "warning: " + text);
}
void log_error(const std::string& text) {
  logger().error(prefix + "error: " + text);
}

void set_log_rank(int rank) {
  prefix = "[rank " + std::to_string(rank) + "] ";
}

void set_log_level(const std::string& level) {
  const auto parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off") {
    throw ConfigError("log level '" + level + "': allowed are trace, debug, info, warn, error, off");
  }
  logger().set_level(parsed);
}

}  // namespace sixfold
