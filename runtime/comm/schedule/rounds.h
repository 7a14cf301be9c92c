// How many rounds a pass takes, by counting. Part of verify().
#pragma once

#include <vector>

#include "runtime/comm/schedule/schedule.h"

namespace sixfold::comm {

/// schedules[r] is one pass of rank r; free of deadlock.
int count_rounds(const std::vector<Schedule>& schedules);

}  // namespace sixfold::comm
