// Plan: everything about a collective that does not depend on where its buffers are. Worked out once for each shape,
// and kept by the group, so that the next call of the same shape builds nothing.
#pragma once

#include <functional>
#include <vector>

#include "runtime/comm/schedule/schedule.h"

namespace sixfold::comm {

using ScheduleSource = std::function<Schedule(const Call&)>;

class Plan {
 public:
  /// `call` without pass fields; call.topology and call.counts must outlive the plan. max_pass_count as the function of
  /// that name gives it for this algorithm and slot size.
  Plan(const Call& call, const ScheduleSource& source, size_t max_pass_count);

  const Call& call() const { return call_; }
  size_t num_passes() const { return num_passes_; }
  int num_channels() const { return num_channels_; }
  /// Elements that the largest pass needs.
  size_t scratch_count() const { return scratch_count_; }
  size_t accum_count() const { return accum_count_; }

  /// The schedule of pass `index`, whose slices of Input and Output lie `shift` elements further on than it says.
  struct Pass {
    const Schedule* schedule;
    size_t shift;
  };
  Pass pass(size_t index) const;

 private:
  void add(Schedule schedule);

  Call call_;
  size_t pass_count_, num_passes_;
  std::vector<Schedule> schedules_;  // all passes where blocks differ in size; else the first and the last
  int num_channels_ = 1;
  size_t scratch_count_ = 0, accum_count_ = 0;
};

}  // namespace sixfold::comm
