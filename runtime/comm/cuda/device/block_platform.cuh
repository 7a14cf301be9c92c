// BlockPlatform: a block of a GPU as the interpreter sees it (interpreter.h).
//
// Flags are read and written with acquire and release at system scope: the other side may be another GPU or the host.
// One thread waits and raises; the barriers before and after make that hold for the whole block (PTX ISA, "Memory
// consistency model": causality order goes through bar.sync).
#pragma once

#include "runtime/comm/cuda/kernel_control.h"

namespace sixfold::comm {

__device__ inline uint64_t load_acquire(const uint64_t* flag) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
  return value;
}

__device__ inline void store_release(uint64_t* flag, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

__device__ inline uint64_t global_nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

class BlockPlatform {
 public:
  __device__ BlockPlatform(const KernelControl& control, uint32_t rank) : control_(control), rank_(rank) {}

  __device__ uint32_t thread() const { return threadIdx.x; }
  __device__ static constexpr uint32_t num_threads() { return kBlockThreads; }
  __device__ void sync() { __syncthreads(); }
  __device__ bool agree(bool ok) { return __syncthreads_and(ok) != 0; }
  __device__ void raise(uint64_t* flag, uint64_t value) { store_release(flag, value); }

  template <typename V>
  __device__ void pin(V& value) {
    if constexpr (sizeof(V) % 16 == 0) {
#pragma unroll
      for (uint32_t& word : value.word) asm volatile("" : "+r"(word));
    }
  }

  /// Past the caches that are not coherent with what a peer has written.
  template <typename V>
  __device__ V load(const V* address) {
    if constexpr (sizeof(V) == 16) {
      uint4 words;
      asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                   : "l"(address)
                   : "memory");
      return __builtin_bit_cast(V, words);
    } else if constexpr (sizeof(V) == 8) {
      return __builtin_bit_cast(V, *reinterpret_cast<const volatile uint64_t*>(address));
    } else if constexpr (sizeof(V) == 4) {
      return __builtin_bit_cast(V, *reinterpret_cast<const volatile uint32_t*>(address));
    } else if constexpr (sizeof(V) == 2) {
      return __builtin_bit_cast(V, *reinterpret_cast<const volatile uint16_t*>(address));
    } else {
      return __builtin_bit_cast(V, *reinterpret_cast<const volatile uint8_t*>(address));
    }
  }

  __device__ bool await(const uint64_t* flag, uint64_t at_least, const WaitPlace& place) {
    uint64_t got = load_acquire(flag);
    if (got >= at_least) return true;
    const uint64_t start = global_nanoseconds();
    for (uint32_t spins = 1;; ++spins) {
      got = load_acquire(flag);
      if (got >= at_least) return true;
      if (spins % kSpinsBetweenLooks == 0 && gives_up(start, place, at_least, got)) return false;
    }
  }

  __device__ uint64_t load_word(const uint64_t* word) const {
    return *reinterpret_cast<const volatile uint64_t*>(word);
  }
  __device__ void store_word(uint64_t* word, uint64_t value) const {
    *reinterpret_cast<volatile uint64_t*>(word) = value;
  }
  __device__ bool await_word(const uint64_t* at, uint32_t number, uint64_t& word, const WaitPlace& place) {
    const uint64_t start = global_nanoseconds();
    for (uint32_t spins = 1;; ++spins) {
      word = load_word(at);
      if (word >> 32 == number) return true;
      if (spins % kSpinsBetweenLooks == 0 && gives_up(start, place, number, word >> 32)) return false;
    }
  }

 private:
  static constexpr uint32_t kSpinsBetweenLooks = 256;

  /// Now and then: the abort word is in the host's memory, hundreds of nanoseconds away.
  __device__ bool gives_up(uint64_t start, const WaitPlace& place, uint64_t wanted, uint64_t got) {
    if (*reinterpret_cast<const volatile uint32_t*>(control_.abort) != 0) return true;
    if (global_nanoseconds() - start <= control_.timeout_ns) return false;
    record(place, wanted, got);
    return true;
  }

  __device__ void record(const WaitPlace& place, uint64_t wanted, uint64_t got) {
    if (atomicCAS_system(&control_.stuck->claimed, 0u, 1u) != 0) return;
    StuckRecord& stuck = *control_.stuck;
    stuck.rank = rank_;
    stuck.kind = place.kind;
    stuck.channel = place.channel;
    stuck.split = place.split;
    stuck.connection = place.connection;
    stuck.instruction = place.instruction;
    stuck.pass = place.pass;
    stuck.wanted = wanted;
    stuck.got = got;
    __threadfence_system();
    *reinterpret_cast<volatile uint32_t*>(&stuck.set) = 1;
  }

  const KernelControl& control_;
  uint32_t rank_;
};

/// All blocks of a grid that has one dimension, as if they were one: for work that waits for nothing.
class GridPlatform : public BlockPlatform {
 public:
  using BlockPlatform::BlockPlatform;
  __device__ uint32_t thread() const { return blockIdx.x * kBlockThreads + threadIdx.x; }
  __device__ static uint32_t num_threads() { return gridDim.x * kBlockThreads; }
};

}  // namespace sixfold::comm
