// What host and kernels tell each other while a kernel runs: pinned memory that both read and write.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/comm/cuda/interpreter.h"

namespace sixfold::comm {

inline constexpr uint32_t kBlockThreads = 512;

/// Where a block gave up waiting. Written once, by the first block that does.
struct StuckRecord {
  uint32_t claimed;  // 0: nobody; written first
  uint32_t set;      // 1: all below is written
  uint32_t rank;     // of the group
  WaitKind kind;
  uint32_t channel, split, connection, instruction;
  uint64_t pass, wanted, got;
};

/// Why a block gave up, for error texts.
std::string to_string(const StuckRecord& stuck);

struct KernelControl {
  const uint32_t* abort = nullptr;  // not 0: the World has failed, every block leaves
  StuckRecord* stuck = nullptr;
  uint64_t timeout_ns = 0;  // of one wait
};

}  // namespace sixfold::comm
