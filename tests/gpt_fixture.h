// A Gpt whose parameters and gradients live in tensors of their own, without a strategy; and its double in
// ReferenceGpt.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "models/gpt.h"
#include "runtime/core/rng.h"
#include "runtime/parallel/init.h"
#include "tests/reference_gpt.h"

namespace sixfold::test {

/// Tokens and next-token targets of rows of `seq_len`, keyed by seed.
struct TokenBatch {
  std::vector<int32_t> tokens, targets;
  std::vector<int64_t> sample_index;
  int64_t seq_len = 0;

  TokenBatch(int64_t num_rows, int64_t seq_len_, int64_t vocab_size, uint64_t seed) : seq_len(seq_len_) {
    const auto token = [&](int64_t i) {
      return static_cast<int32_t>(philox_hash(seed, static_cast<uint64_t>(i)) % static_cast<uint64_t>(vocab_size));
    };
    for (int64_t row = 0; row < num_rows; ++row) {
      sample_index.push_back(row);
      for (int64_t t = 0; t < seq_len; ++t) {
        tokens.push_back(token(row * (seq_len + 1) + t));
        targets.push_back(token(row * (seq_len + 1) + t + 1));
      }
    }
  }

  int64_t num_valid() const {
    return std::count_if(targets.begin(), targets.end(), [](int32_t target) { return target >= 0; });
  }

  /// Rows [first, first + num_rows) as the model takes them; views this.
  parallel::MicroBatch rows(int64_t first, int64_t num_rows) {
    parallel::MicroBatch batch;
    batch.tokens = Tensor::view(tokens.data() + first * seq_len, {num_rows * seq_len}, DType::I32);
    batch.targets = Tensor::view(targets.data() + first * seq_len, {num_rows * seq_len}, DType::I32);
    batch.sample_index.assign(sample_index.begin() + first, sample_index.begin() + first + num_rows);
    batch.seq_len = seq_len;
    return batch;
  }
  parallel::MicroBatch all() { return rows(0, static_cast<int64_t>(sample_index.size())); }
};

class PlacedGpt {
 public:
  Memory memory;
  kernels::Context context{memory, 1};  // tests make it wider
  models::Gpt model;
  parallel::UnitList units;
  std::vector<parallel::Parameter*> parameters;

  /// Every weight is normal(0, 0.3), norms around 1: far from the small initial weights, whose attention is almost
  /// uniform.
  explicit PlacedGpt(const models::GptConfig& config)
      : model(config), units(model.units()), parameters(model.parameters_by_name()) {
    for (parallel::Parameter* p : parameters) {
      p->value = Tensor::empty(p->local_shape(), DType::F32, memory, Category::Parameters);
      p->grad = Tensor::zeros(p->local_shape(), DType::F32, memory, Category::Gradients);
      parallel::NormalSequence normal(7, p->name);
      for (int64_t i = 0; i < p->value.numel(); ++i)
        p->value.data<float>()[i] = static_cast<float>(p->init.constant + 0.3 * normal.at(i));
    }
  }

  /// The sum of the losses of the valid targets.
  double forward(const parallel::MicroBatch& batch, std::vector<parallel::Saved>& saved) {
    saved.assign(units.size(), {});
    Tensor x;
    for (size_t u = 0; u < units.size(); ++u) x = units[u]->forward(context, x, batch, saved[u]);
    return x.data<float>()[0];
  }

  /// Adds the gradients of scale * (sum of losses).
  void backward(
      const parallel::MicroBatch& batch, std::vector<parallel::Saved>& saved, double scale,
      const parallel::GradientReady& ready = [](parallel::Parameter&) {}) {
    Tensor dy = Tensor::empty({1}, DType::F32, memory, Category::Activations);
    dy.data<float>()[0] = static_cast<float>(scale);
    for (size_t u = units.size(); u-- > 0;) {
      dy = units[u]->backward_input(context, dy, batch, saved[u]);
      units[u]->backward_weights(context, batch, saved[u], ready);
    }
  }

  double forward_backward(const parallel::MicroBatch& batch, double scale) {
    std::vector<parallel::Saved> saved;
    const double loss = forward(batch, saved);
    backward(batch, saved, scale);
    return loss;
  }

  double loss(const parallel::MicroBatch& batch) {
    std::vector<parallel::Saved> saved;
    return forward(batch, saved);
  }

  void clear_gradients() {
    for (parallel::Parameter* p : parameters) p->grad.zero();
  }

  parallel::Parameter& parameter(const std::string& name) {
    for (parallel::Parameter* p : parameters)
      if (p->name == name) return *p;
    throw std::invalid_argument("no parameter " + name);
  }

  /// The same weights in double; the padding of the token table is left out.
  ReferenceGpt reference() const {
    const models::GptConfig& c = model.config();
    ReferenceGpt result({c.num_layers, c.num_heads, c.dim, c.seq_len, c.vocab_size});
    for (const parallel::Parameter* p : parameters) {
      Values& values = result.params.at(p->name);
      for (size_t i = 0; i < values.size(); ++i) values[i] = p->value.data<float>()[i];
    }
    return result;
  }
};

/// ||actual - expected|| / ||expected|| over elements [begin, begin + stride), [begin + row, ...) of rows of `row`
/// elements.
inline double relative_difference(const Tensor& actual, const Values& expected, size_t row, size_t begin,
                                  size_t length) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (i % row < begin || i % row >= begin + length) continue;
    difference += std::pow(actual.data<float>()[i] - expected[i], 2);
    norm += expected[i] * expected[i];
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

/// Each parameter's gradient is the reference's to `tolerance` of its norm. Queries, keys and values count as tensors
/// of their own; the keys' bias, which shifts all scores of a query alike, has no gradient but rounding noise.
inline void expect_gradients(const PlacedGpt& gpt, const NamedValues& expected, double tolerance = 1e-5) {
  for (const parallel::Parameter* p : gpt.parameters) {
    SCOPED_TRACE(p->name);
    const Values& values = expected.at(p->name);
    if (p->name.find("c_attn") == std::string::npos) {
      EXPECT_LE(relative_difference(p->grad, values, values.size(), 0, values.size()), tolerance);
      continue;
    }
    const size_t c = static_cast<size_t>(gpt.model.config().dim);
    const bool is_bias = p->full_shape.size() == 1;
    EXPECT_LE(relative_difference(p->grad, values, 3 * c, 0, c), tolerance) << "queries";
    EXPECT_LE(relative_difference(p->grad, values, 3 * c, 2 * c, c), tolerance) << "values";
    if (!is_bias) {
      EXPECT_LE(relative_difference(p->grad, values, 3 * c, c, c), tolerance) << "keys";
      continue;
    }
    double norm = 0;
    for (double value : values) norm += value * value;
    for (size_t i = c; i < 2 * c; ++i)
      EXPECT_LE(std::abs(p->grad.data<float>()[i]), 1e-6 * std::sqrt(norm)) << "key bias " << i - c;
  }
}

}  // namespace sixfold::test
