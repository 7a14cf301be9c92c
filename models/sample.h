// Text generation, one token after the other.
#pragma once

#include <cstdint>
#include <vector>

#include "models/gpt.h"

namespace sixfold::models {

struct SampleOptions {
  int64_t num_tokens = 200;
  float temperature = 0.8f;  // logits are divided by it; 0: always the most likely token
  uint64_t seed = 1;         // keys the draws; the same seed, weights and prompt give the same text
};

/// Continues `prompt` (at least one token) by num_tokens tokens and returns those. Collective as the strategy's
/// before_forward is, with the same arguments and result on all ranks; without a strategy every parameter must be whole
/// on this rank. Each token is a whole forward pass over the last seq_len tokens at most, so it costs a third of a
/// training step of one row. Throws ConfigError for a temperature that is negative or no number.
std::vector<int32_t> sample(const Gpt& model, kernels::Context& context, std::vector<int32_t> prompt,
                            const SampleOptions& options, parallel::Strategy* strategy = nullptr);

}  // namespace sixfold::models
