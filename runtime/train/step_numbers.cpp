#include "runtime/train/step_numbers.h"

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/exact_sum.h"
#include "kernels/fixed_point.h"

namespace sixfold::train {

namespace {

using kernels::ExactSum;
using kernels::FixedPoint;

constexpr int64_t kNumWords = 1 + 2 + ExactSum::kNumWords;

}  // namespace

StepNumbers::StepNumbers(const kernels::Place& place)
    : StepNumbers(place, Tensor::empty({kNumWords}, DType::I64, place.memory, Category::Other),
                  Tensor::empty({2}, DType::F32, place.memory, Category::Other)) {}

StepNumbers::StepNumbers(const kernels::Place& place, const Tensor& whole, const Tensor& factors)
    : num_tokens(whole.slice(0, {1})),
      loss(whole.slice(1, {2})),
      squares(whole.slice(3, {ExactSum::kNumWords})),
      token_scale(factors.slice(0, {1})),
      grad_scale(factors.slice(1, {1})),
      place_(place),
      whole_(whole) {}

void StepNumbers::start(int64_t num_tokens_of_rank) {
  std::array<int64_t, kNumWords> words{num_tokens_of_rank};
  kernels::from_host(place_, Tensor::view(words.data(), {kNumWords}, DType::I64), whole_);
}

void StepNumbers::skip_update() {
  float none = std::numeric_limits<float>::quiet_NaN();
  kernels::from_host(place_, Tensor::view(&none, {1}, DType::F32), grad_scale);
}

StepNumbers::Values StepNumbers::read() const {
  const Tensor host = kernels::on_host(place_, whole_);
  const int64_t* words = host.data<int64_t>();
  ExactSum sum;
  std::copy_n(words + 3, ExactSum::kNumWords, sum.words);
  return {words[0], FixedPoint{words[1], words[2]}.value(), sum.value()};
}

}  // namespace sixfold::train
