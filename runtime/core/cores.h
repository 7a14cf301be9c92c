// How many cores there are for this process.
#pragma once

namespace sixfold {

/// Those that its affinity mask allows (a launcher may bind processes to some), at least 1.
int usable_cores();

}  // namespace sixfold
