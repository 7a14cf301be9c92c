#include "runtime/train/scalar_sum.h"

#include "kernels/fixed_point.h"
#include "runtime/parallel/call_options.h"

namespace sixfold::train {

double sum_over_ranks(const kernels::Place& place, comm::Communicator& group, double value, const std::string& tag) {
  kernels::FixedPoint fixed = kernels::FixedPoint::of(value, group.size());
  const Tensor sum = Tensor::empty({2}, DType::I64, place.memory, Category::Other);
  kernels::from_host(place, Tensor::view(&fixed, {2}, DType::I64), sum);
  group.all_reduce(sum, sum, ReduceOp::Sum, parallel::call_options(kernels::context_of(place), tag)).wait();
  const Tensor result = kernels::on_host(place, sum);
  return kernels::FixedPoint{result.data<int64_t>()[0], result.data<int64_t>()[1]}.value();
}

}  // namespace sixfold::train
