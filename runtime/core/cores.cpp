#include "runtime/core/cores.h"

#include <sched.h>

#include <algorithm>

namespace sixfold {

int usable_cores() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? std::max(CPU_COUNT(&cpus), 1) : 1;
}

}  // namespace sixfold
