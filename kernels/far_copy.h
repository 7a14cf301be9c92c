// Copies to memory whose cache lines another core holds: slots of links and peers' buffers.
#pragma once

#include <cstddef>

namespace sixfold::kernels {

/// memcpy, for a destination that another core has read or written since this one did, and that this one will not read
/// soon. An ordinary store first fetches the line that it is about to overwrite, 8 ns each between distant cores of a
/// server CPU; `rep movsb` tells the core that whole lines are coming, and costs a quarter of that. Short copies, and
/// CPUs that do not announce it as fast (ERMS), take memcpy.
void far_copy(void* to, const void* from, size_t bytes);

}  // namespace sixfold::kernels
