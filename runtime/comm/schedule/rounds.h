// How many rounds a pass takes, by counting, and what is sent in each. Part of verify().
#pragma once

#include <vector>

#include "runtime/comm/schedule/schedule.h"

namespace sixfold::comm {

/// schedules[r] is one pass of rank r; free of deadlock.
int count_rounds(const std::vector<Schedule>& schedules);

/// A message of such a pass.
struct TimedMessage {
  int round = 0;  // from 0
  int sender = 0;
  size_t step = 0;  // of the sender's schedule: which says what, and to whom
};
/// All of them, in the order of their rounds.
std::vector<TimedMessage> messages_by_round(const std::vector<Schedule>& schedules);

}  // namespace sixfold::comm
