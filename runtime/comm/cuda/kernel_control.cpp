#include "runtime/comm/cuda/kernel_control.h"

namespace sixfold::comm {

std::string to_string(const StuckRecord& stuck) {
  static constexpr const char* kNames[] = {"nothing", "a message", "a free slot", "another channel",
                                           "words of another rank"};
  return "rank " + std::to_string(stuck.rank) + " waited in a kernel for " + kNames[static_cast<int>(stuck.kind)] +
         ": channel " + std::to_string(stuck.channel) + ", split " + std::to_string(stuck.split) + ", connection " +
         std::to_string(stuck.connection) + ", pass " + std::to_string(stuck.pass) + ", instruction " +
         std::to_string(stuck.instruction) + ", wanted " + std::to_string(stuck.wanted) + ", got " +
         std::to_string(stuck.got);
}

}  // namespace sixfold::comm
