// ScalarSum: one number added up over the ranks of a group, in the background.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "runtime/train/host_sum.h"

namespace sixfold::train {

/// AllReduce of one double in fixed point (64 bits, 32 of them behind the point), so that the sum is the same to the
/// bit whatever the algorithm and its order of additions. Absolute error below 2^-32 per rank.
class ScalarSum {
 public:
  /// Collective over `group`, whose collectives work on `place`. Must not be destroyed or started again before wait().
  void start(const kernels::Place& place, comm::Communicator& group, double value, const std::string& tag);
  /// The sum, on every rank. NaN when the value of any rank was not finite or not below 2^31 / size.
  double wait();

 private:
  std::array<int64_t, 2> parts_{};  // fixed-point value, number of ranks without one
  HostSum sum_;
};

/// start() and wait() in one.
double sum_over_ranks(const kernels::Place& place, comm::Communicator& group, double value, const std::string& tag);

}  // namespace sixfold::train
