// StepNumbers: the few numbers of a step that ranks add up and kernels scale by.
//
// They stay where kernels work. On a GPU the CPU has long issued the rest of a step when they come about; it reads them
// once, when the step ends.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace sixfold::train {

class StepNumbers {
 public:
  /// Memory of the place, Category::Other, for all steps.
  explicit StepNumbers(const kernels::Place& place);

  /// Those of a new step: so many valid tokens on this rank, all else 0.
  void start(int64_t num_tokens);
  /// Replaces the factor of gradients by NaN: no update is made of them (Optimizer::update).
  void skip_update();

  const Tensor num_tokens;   // i64 [1]
  const Tensor loss;         // i64 [2], the words of a kernels::FixedPoint: the sum over valid tokens
  const Tensor squares;      // i64 [ExactSum::kNumWords], the words of a kernels::ExactSum: of all gradients
  const Tensor token_scale;  // f32 [1]: 1 / valid tokens, by which each token's loss counts
  const Tensor grad_scale;   // f32 [1]: what gradients are multiplied by

  struct Values {
    int64_t num_tokens = 0;
    double loss = 0, sum_of_squares = 0;
  };
  /// On a GPU, when all that was issued before has run.
  Values read() const;

 private:
  StepNumbers(const kernels::Place& place, const Tensor& whole, const Tensor& factors);

  kernels::Place place_;
  Tensor whole_;  // the three of i64, in this order
};

}  // namespace sixfold::train
