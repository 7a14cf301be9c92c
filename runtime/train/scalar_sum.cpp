#include "runtime/train/scalar_sum.h"

#include <cmath>
#include <limits>

namespace sixfold::train {

void ScalarSum::start(const kernels::Place& place, comm::Communicator& group, double value, const std::string& tag) {
  const bool representable = std::abs(value) < 0x1p31 / group.size();  // false for NaN
  parts_ = {representable ? std::llround(value * 0x1p32) : 0, representable ? 0 : 1};
  sum_.start(place, group, parts_, tag);
}

double ScalarSum::wait() {
  sum_.wait();
  if (parts_[1] > 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(parts_[0]) * 0x1p-32;
}

double sum_over_ranks(const kernels::Place& place, comm::Communicator& group, double value, const std::string& tag) {
  ScalarSum sum;
  sum.start(place, group, value, tag);
  return sum.wait();
}

}  // namespace sixfold::train
