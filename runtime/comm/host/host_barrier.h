// A barrier of the members of a host group, for what they open together: a region must not go away before all have it,
// so nobody leaves earlier.
#pragma once

#include <string_view>

#include "runtime/comm/host/own_group.h"

namespace sixfold::comm {

/// Collective: returns when all members of `group` have called it. Throws CommError.
void host_barrier(OwnGroup& group, std::string_view tag);

}  // namespace sixfold::comm
