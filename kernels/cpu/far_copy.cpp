#include "kernels/far_copy.h"

#include <cstring>

// Sanitizers see what a memcpy touches, and not what assembly does.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define SIXFOLD_REP_MOVSB 1
#include <cpuid.h>
#endif

namespace sixfold::kernels {

#ifdef SIXFOLD_REP_MOVSB

namespace {

// Source: Intel 64 and IA-32 Software Developer's Manual, volume 2A, CPUID leaf 7, EBX bit 9: "Enhanced REP MOVSB".
bool has_fast_rep_movsb() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & 1u << 9) != 0;
}

const bool kFastRepMovsb = has_fast_rep_movsb();
constexpr size_t kShortestBytes = 2048;  // below, its start costs more than it saves

}  // namespace

void far_copy(void* to, const void* from, size_t bytes) {
  if (bytes < kShortestBytes || !kFastRepMovsb) {
    std::memcpy(to, from, bytes);
    return;
  }
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

#else

void far_copy(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

#endif

}  // namespace sixfold::kernels
