#include "runtime/core/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "runtime/core/error.h"

namespace sixfold {

namespace {
std::shared_ptr<spdlog::logger> make_logger(const std::string& prefix) {
  // One sink for all ranks of the process: lines of different threads do not mix.
  static auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>(prefix, sink);
  logger->set_level(spdlog::get_level());
  logger->set_pattern(prefix.empty() ? "%l: %v" : "[" + prefix + "] %l: %v");
  return logger;
}
thread_local std::shared_ptr<spdlog::logger> thread_logger;

spdlog::logger& logger() {
  if (!thread_logger) thread_logger = make_logger("");
  return *thread_logger;
}
}  // namespace

void log_info(const std::string& text) {
  logger().info(text);
}
void log_warn(const std::string& text) {
  logger().warn(text);
}
void log_error(const std::string& text) {
  logger().error(text);
}

void set_log_rank(int rank) {
  thread_logger = make_logger("rank " + std::to_string(rank));
}

void set_log_level(const std::string& level) {
  const auto parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off") {
    throw ConfigError("log level '" + level + "': allowed are trace, debug, info, warn, error, off");
  }
  spdlog::set_level(parsed);
  logger().set_level(parsed);
}

}  // namespace sixfold
