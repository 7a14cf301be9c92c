#include "models/sample.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "runtime/core/rng.h"

namespace sixfold::models {

namespace {

/// The token at which the running sum of softmax(logits / temperature) passes `uniform` in [0, 1).
int32_t draw(const Tensor& logits, float temperature, double uniform) {
  const float* begin = logits.data<float>();
  const float* end = begin + logits.numel();
  const float* best = std::max_element(begin, end);
  if (temperature == 0) return static_cast<int32_t>(best - begin);
  const auto weight = [&](const float* logit) { return std::exp((double{*logit} - double{*best}) / temperature); };
  double left = 0;
  for (const float* logit = begin; logit != end; ++logit) left += weight(logit);
  left *= uniform;
  for (const float* logit = begin; logit != end; ++logit) {
    left -= weight(logit);
    if (left < 0) return static_cast<int32_t>(logit - begin);
  }
  return static_cast<int32_t>(best - begin);  // rounding used up the last weight
}

}  // namespace

std::vector<int32_t> sample(const Gpt& model, kernels::Context& context, std::vector<int32_t> prompt,
                            const SampleOptions& options, parallel::Pipeline* pipeline) {
  if (!(options.temperature >= 0))
    throw ConfigError("temperature " + std::to_string(options.temperature) + ": allowed values are numbers from 0 on");
  SIXFOLD_CHECK_LE(size_t{1}, prompt.size(), "tokens of the prompt");
  std::vector<int32_t> text = std::move(prompt);
  const size_t prompt_length = text.size();
  for (int64_t i = 0; i < options.num_tokens; ++i) {
    const int64_t length = std::min(static_cast<int64_t>(text.size()), model.config().seq_len);
    parallel::MicroBatch batch;
    batch.tokens = Tensor::view(text.data() + text.size() - static_cast<size_t>(length), {length}, DType::I32);
    batch.sample_index = {0};
    batch.seq_len = length;
    batch.training = false;
    batch.all_positions = true;
    batch.to_device(context);
    const Tensor logits = kernels::floats_on_host(context, model.next_logits(context, batch, pipeline));
    const uint64_t bits = philox_hash(options.seed, static_cast<uint64_t>(i));
    text.push_back(draw(logits, options.temperature, static_cast<double>(bits >> 11) * 0x1p-53));
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt_length), text.end()};
}

}  // namespace sixfold::models
