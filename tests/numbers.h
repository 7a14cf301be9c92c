// Single numbers where kernels work, for tests.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/exact_sum.h"
#include "kernels/kernels.h"

namespace sixfold::test {

/// f32 [1].
inline Tensor number(const kernels::Place& place, float value) {
  const Tensor t = Tensor::empty({1}, DType::F32, place.memory, Category::Other);
  kernels::from_host(place, Tensor::view(&value, {1}, DType::F32), t);
  return t;
}

/// i64, all 0, for an exact sum.
inline Tensor empty_sum(const kernels::Place& place) {
  return kernels::zeros(place, {kernels::ExactSum::kNumWords}, DType::I64, Category::Other);
}

/// Rounded once.
inline double value_of_sum(const kernels::Place& place, const Tensor& sum) {
  const Tensor host = kernels::on_host(place, sum);
  kernels::ExactSum exact;
  std::copy_n(host.data<int64_t>(), kernels::ExactSum::kNumWords, exact.words);
  return exact.value();
}

inline double sum_of_squares(kernels::Context& context, const std::vector<Tensor>& tensors,
                             kernels::SquareSums how = kernels::SquareSums::ByTensor) {
  const Tensor sum = empty_sum(context);
  kernels::add_squares(context, tensors, how, sum);
  return value_of_sum(context, sum);
}

}  // namespace sixfold::test
