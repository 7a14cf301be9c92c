// One number of the CPU added up over the ranks of a group.
#pragma once

#include <string>

#include "kernels/kernels.h"
#include "runtime/comm/communicator.h"

namespace sixfold::train {

/// The sum of the ranks' values, the same to the bit whatever the algorithm and its order of additions: they travel in
/// fixed point (kernels/fixed_point.h), absolute error below 2^-32 per rank. NaN when the value of any rank was not
/// finite or not below 2^31 / size. Collective over `group`, whose collectives work on `place`.
double sum_over_ranks(const kernels::Place& place, comm::Communicator& group, double value, const std::string& tag);

}  // namespace sixfold::train
