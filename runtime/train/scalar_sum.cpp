#include "runtime/train/scalar_sum.h"

#include <cmath>
#include <limits>

namespace sixfold::train {

void ScalarSum::start(comm::Communicator& group, double value, const std::string& tag) {
  const bool representable = std::abs(value) < 0x1p31 / group.size();  // false for NaN
  parts_ = {representable ? std::llround(value * 0x1p32) : 0, representable ? 0 : 1};
  const comm::Buf buf(parts_.data(), parts_.size(), DType::I64);
  comm::Options options;
  options.tag = tag;
  work_ = group.all_reduce(buf, buf, ReduceOp::Sum, options);
}

double ScalarSum::wait() {
  work_.wait();
  if (parts_[1] > 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(parts_[0]) * 0x1p-32;
}

double sum_over_ranks(comm::Communicator& group, double value, const std::string& tag) {
  ScalarSum sum;
  sum.start(group, value, tag);
  return sum.wait();
}

}  // namespace sixfold::train
