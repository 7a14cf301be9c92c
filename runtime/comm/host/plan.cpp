#include "runtime/comm/host/plan.h"

#include <algorithm>

namespace sixfold::comm {

Plan::Plan(const Call& call, const ScheduleSource& source, size_t max_pass_count)
    : call_(call), pass_count_(max_pass_count), num_passes_((call.count + max_pass_count - 1) / max_pass_count) {
  // Passes before the last are alike: they cover as much of the buffer, or of each block, further on. Blocks of
  // different size end in different passes.
  const bool alike = call.counts == nullptr;
  for (size_t index = 0; index < num_passes_; ++index) {
    if (alike && index > 0 && index + 1 < num_passes_) continue;
    Call pass = call;
    pass.pass_offset = index * pass_count_;
    pass.pass_count = std::min(pass_count_, call.count - pass.pass_offset);
    add(source(pass));
  }
}

void Plan::add(Schedule schedule) {
  num_channels_ = std::max(num_channels_, schedule.num_channels);
  scratch_count_ = std::max(scratch_count_, schedule.scratch_count);
  accum_count_ = std::max(accum_count_, schedule.accum_count);
  schedules_.push_back(std::move(schedule));
}

Plan::Pass Plan::pass(size_t index) const {
  if (call_.counts != nullptr) return {&schedules_[index], 0};
  if (index + 1 == num_passes_) return {&schedules_.back(), 0};
  return {&schedules_.front(), index * pass_count_};
}

}  // namespace sixfold::comm
