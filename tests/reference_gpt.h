// GPT-2 in double precision and plain loops: what the real model, and any way of distributing it, is compared with.
//
// It shares nothing with the code under test: its own formulas, its own layout of attention (probabilities in full),
// one row at a time. Layouts of parameters are Hugging Face's, names as in the checkpoint.
//
//   ReferenceGpt reference({.num_layers = 2, ...});
//   reference.params["wte.weight"] = ...;                                 // the constructor has made every name
//   auto result = reference.loss_and_gradients(tokens, targets, seq_len, 1.0 / valid_tokens);
//   reference.adamw_step(result.gradients, {.lr = 1e-3});
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/reference_layers.h"

namespace sixfold::test {

using NamedValues = std::map<std::string, Values>;

struct ReferenceConfig {
  int64_t num_layers = 1, num_heads = 1, dim = 4, seq_len = 4, vocab_size = 4;
};

/// What dropout multiplies a value with (0 or 1 / (1 - p)). place: 0 after the embeddings, 1 after attention's
/// projection, 2 after the MLP's; row: row of the batch, not a global sample.
using DropoutFactor = std::function<double(int layer, int place, int64_t row, int64_t position, int64_t channel)>;

struct ReferenceResult {
  double loss_sum = 0;    // over valid targets
  int64_t num_valid = 0;  // targets >= 0
  NamedValues gradients;  // of scale * loss_sum
};

struct ReferenceAdamW {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0;
};

class ReferenceGpt {
 public:
  ReferenceConfig config;
  NamedValues params;
  DropoutFactor dropout_factor;  // empty: no dropout

  explicit ReferenceGpt(ReferenceConfig shape) : config(shape) {
    const auto add = [&](const std::string& name, int64_t size) { params[name].resize(static_cast<size_t>(size)); };
    const int64_t c = config.dim;
    const auto add_norm = [&](const std::string& name) {
      add(name + ".weight", c);
      add(name + ".bias", c);
    };
    const auto add_linear = [&](const std::string& name, int64_t in, int64_t out) {
      add(name + ".weight", in * out);
      add(name + ".bias", out);
    };
    add("wte.weight", config.vocab_size * c);
    add("wpe.weight", config.seq_len * c);
    for (int64_t l = 0; l < config.num_layers; ++l) {
      const std::string h = "h." + std::to_string(l);
      add_norm(h + ".ln_1");
      add_linear(h + ".attn.c_attn", c, 3 * c);
      add_linear(h + ".attn.c_proj", c, c);
      add_norm(h + ".ln_2");
      add_linear(h + ".mlp.c_fc", c, 4 * c);
      add_linear(h + ".mlp.c_proj", 4 * c, c);
    }
    add_norm("ln_f");
  }

  /// tokens, targets: rows of seq_len, one after the other; targets < 0 are masked.
  ReferenceResult loss_and_gradients(std::span<const int32_t> tokens, std::span<const int32_t> targets, int64_t seq_len,
                                     double scale) const {
    ReferenceResult result;
    for (const auto& [name, values] : params) result.gradients[name].assign(values.size(), 0.0);
    for_each_row(tokens, targets, seq_len, [&](RowPass& pass) {
      pass.forward();
      result.loss_sum += pass.loss_sum();
      result.num_valid += pass.num_valid();
      pass.backward(scale, result.gradients);
    });
    return result;
  }

  /// The sum of the losses of the valid targets.
  double loss_sum(std::span<const int32_t> tokens, std::span<const int32_t> targets, int64_t seq_len) const {
    double sum = 0;
    for_each_row(tokens, targets, seq_len, [&](RowPass& pass) {
      pass.forward();
      sum += pass.loss_sum();
    });
    return sum;
  }

  void adamw_step(const NamedValues& gradients, const ReferenceAdamW& options) {
    ++num_steps_;
    for (auto& [name, w] : params) {
      const Values& g = gradients.at(name);
      Values &m = first_moments_[name], &v = second_moments_[name];
      m.resize(w.size());
      v.resize(w.size());
      for (size_t i = 0; i < w.size(); ++i) {
        m[i] = options.beta1 * m[i] + (1 - options.beta1) * g[i];
        v[i] = options.beta2 * v[i] + (1 - options.beta2) * g[i] * g[i];
        const double m_hat = m[i] / (1 - std::pow(options.beta1, num_steps_));
        const double v_hat = v[i] / (1 - std::pow(options.beta2, num_steps_));
        const double decay = decays(name) ? options.weight_decay : 0;
        w[i] -= options.lr * (m_hat / (std::sqrt(v_hat) + options.eps) + decay * w[i]);
      }
    }
  }

  void sgd_step(const NamedValues& gradients, double lr) {
    for (auto& [name, w] : params)
      for (size_t i = 0; i < w.size(); ++i) w[i] -= lr * gradients.at(name)[i];
  }

  /// Global norm over all parameters, each once.
  static double norm(const NamedValues& gradients) {
    double sum = 0;
    for (const auto& [name, values] : gradients)
      for (double value : values) sum += value * value;
    return std::sqrt(sum);
  }

  /// Weight decay applies to matrices: all weights but the norms'.
  static bool decays(const std::string& name) {
    return name.find(".weight") != std::string::npos && name.find("ln_") == std::string::npos;
  }

 private:
  // ---- One row, forward and backward --------------------------------------------------------------------------------

  struct Layer {
    Values x, normed_1, qkv, probabilities, attended, middle, normed_2, hidden, activated;
  };

  class RowPass {
   public:
    RowPass(const ReferenceGpt& model, int64_t row, std::span<const int32_t> tokens, std::span<const int32_t> targets)
        : model_(model), row_(row), tokens_(tokens), targets_(targets), layers_(static_cast<size_t>(layers())) {}

    void forward() {
      const size_t c = channels();
      const Values &wte = p("wte.weight"), &wpe = p("wpe.weight");
      Values x(num_positions() * c);
      for (size_t t = 0; t < num_positions(); ++t)
        for (size_t i = 0; i < c; ++i) x[t * c + i] = wte[static_cast<size_t>(tokens_[t]) * c + i] + wpe[t * c + i];
      drop(x, 0, 0);
      for (int l = 0; l < layers(); ++l) x = forward_layer(l, x);
      last_ = x;
      normed_ = layernorm(x, p("ln_f.weight"), p("ln_f.bias"));
      softmax();
    }

    double loss_sum() const { return loss_sum_; }
    int64_t num_valid() const { return num_valid_; }

    void backward(double scale, NamedValues& gradients) {
      gradients_ = &gradients;
      const size_t c = channels(), vocab = static_cast<size_t>(model_.config.vocab_size);
      const Values& wte = p("wte.weight");
      Values &dwte = g("wte.weight"), &dwpe = g("wpe.weight");
      Values dnormed(normed_.size());
      for (size_t t = 0; t < num_positions(); ++t) {
        if (targets_[t] < 0) continue;
        for (size_t v = 0; v < vocab; ++v) {
          const double d = scale * (softmax_[t * vocab + v] - (v == static_cast<size_t>(targets_[t]) ? 1 : 0));
          for (size_t i = 0; i < c; ++i) {
            dwte[v * c + i] += d * normed_[t * c + i];
            dnormed[t * c + i] += d * wte[v * c + i];
          }
        }
      }
      Values dx = layernorm_backward(dnormed, last_, p("ln_f.weight"), g("ln_f.weight"), g("ln_f.bias"));
      for (int l = layers() - 1; l >= 0; --l) backward_layer(l, dx);
      drop(dx, 0, 0);
      for (size_t t = 0; t < num_positions(); ++t)
        for (size_t i = 0; i < c; ++i) {
          dwte[static_cast<size_t>(tokens_[t]) * c + i] += dx[t * c + i];
          dwpe[t * c + i] += dx[t * c + i];
        }
    }

   private:
    int layers() const { return static_cast<int>(model_.config.num_layers); }
    size_t channels() const { return static_cast<size_t>(model_.config.dim); }
    size_t heads() const { return static_cast<size_t>(model_.config.num_heads); }
    size_t num_positions() const { return tokens_.size(); }
    const Values& p(const std::string& name) const { return model_.params.at(name); }
    Values& g(const std::string& name) const { return gradients_->at(name); }

    /// Multiplies with the dropout factors: forward and backward are the same.
    void drop(Values& x, int layer, int place) const {
      if (!model_.dropout_factor) return;
      for (size_t k = 0; k < x.size(); ++k)
        x[k] *= model_.dropout_factor(layer, place, row_, static_cast<int64_t>(k / channels()),
                                      static_cast<int64_t>(k % channels()));
    }

    static void add(const Values& source, Values& x) {
      for (size_t k = 0; k < x.size(); ++k) x[k] += source[k];
    }

    Values forward_layer(int l, const Values& x) {
      const std::string h = "h." + std::to_string(l);
      Layer& a = layers_[static_cast<size_t>(l)];
      a.x = x;
      a.normed_1 = layernorm(x, p(h + ".ln_1.weight"), p(h + ".ln_1.bias"));
      a.qkv = linear(a.normed_1, p(h + ".attn.c_attn.weight"), p(h + ".attn.c_attn.bias"));
      attention(a);
      a.middle = linear(a.attended, p(h + ".attn.c_proj.weight"), p(h + ".attn.c_proj.bias"));
      drop(a.middle, l, 1);
      add(x, a.middle);
      a.normed_2 = layernorm(a.middle, p(h + ".ln_2.weight"), p(h + ".ln_2.bias"));
      a.hidden = linear(a.normed_2, p(h + ".mlp.c_fc.weight"), p(h + ".mlp.c_fc.bias"));
      a.activated = a.hidden;
      for (double& value : a.activated) value = gelu(value);
      Values y = linear(a.activated, p(h + ".mlp.c_proj.weight"), p(h + ".mlp.c_proj.bias"));
      drop(y, l, 2);
      add(a.middle, y);
      return y;
    }

    /// dx: the gradient of the layer's output on entry, of its input on return.
    void backward_layer(int l, Values& dx) {
      const std::string h = "h." + std::to_string(l);
      const Layer& a = layers_[static_cast<size_t>(l)];
      Values d = dx;
      drop(d, l, 2);
      d = backward_linear(h + ".mlp.c_proj", d, a.activated);
      for (size_t k = 0; k < d.size(); ++k) d[k] *= gelu_slope(a.hidden[k]);
      d = backward_linear(h + ".mlp.c_fc", d, a.normed_2);
      add(layernorm_backward(d, a.middle, p(h + ".ln_2.weight"), g(h + ".ln_2.weight"), g(h + ".ln_2.bias")), dx);
      d = dx;
      drop(d, l, 1);
      d = backward_linear(h + ".attn.c_proj", d, a.attended);
      d = attention_backward(d, a);
      d = backward_linear(h + ".attn.c_attn", d, a.normed_1);
      add(layernorm_backward(d, a.x, p(h + ".ln_1.weight"), g(h + ".ln_1.weight"), g(h + ".ln_1.bias")), dx);
    }

    Values backward_linear(const std::string& name, const Values& dy, const Values& x) const {
      return linear_backward(dy, x, p(name + ".weight"), g(name + ".weight"), g(name + ".bias"));
    }

    /// Where q (which = 0), k (1) or v (2) of a position and head starts in qkv.
    size_t at(size_t which, size_t t, size_t head) const {
      return t * 3 * channels() + which * channels() + head * (channels() / heads());
    }

    void attention(Layer& a) const {
      const size_t n = num_positions(), d = channels() / heads();
      a.probabilities.assign(heads() * n * n, 0.0);
      a.attended.assign(n * channels(), 0.0);
      for (size_t head = 0; head < heads(); ++head)
        for (size_t t = 0; t < n; ++t) {
          double* row = &a.probabilities[(head * n + t) * n];
          double sum = 0;
          for (size_t u = 0; u <= t; ++u) {
            double score = 0;
            for (size_t i = 0; i < d; ++i) score += a.qkv[at(0, t, head) + i] * a.qkv[at(1, u, head) + i];
            row[u] = std::exp(score / std::sqrt(static_cast<double>(d)));
            sum += row[u];
          }
          for (size_t u = 0; u <= t; ++u) {
            row[u] /= sum;
            for (size_t i = 0; i < d; ++i)
              a.attended[t * channels() + head * d + i] += row[u] * a.qkv[at(2, u, head) + i];
          }
        }
    }

    Values attention_backward(const Values& dout, const Layer& a) const {
      const size_t n = num_positions(), d = channels() / heads();
      Values dqkv(a.qkv.size());
      for (size_t head = 0; head < heads(); ++head)
        for (size_t t = 0; t < n; ++t) {
          const double* row = &a.probabilities[(head * n + t) * n];
          const double* dout_t = &dout[t * channels() + head * d];
          Values dprobability(t + 1);
          double mean = 0;
          for (size_t u = 0; u <= t; ++u) {
            for (size_t i = 0; i < d; ++i) {
              dprobability[u] += dout_t[i] * a.qkv[at(2, u, head) + i];
              dqkv[at(2, u, head) + i] += row[u] * dout_t[i];
            }
            mean += row[u] * dprobability[u];
          }
          for (size_t u = 0; u <= t; ++u) {
            const double dscore = row[u] * (dprobability[u] - mean) / std::sqrt(static_cast<double>(d));
            for (size_t i = 0; i < d; ++i) {
              dqkv[at(0, t, head) + i] += dscore * a.qkv[at(1, u, head) + i];
              dqkv[at(1, u, head) + i] += dscore * a.qkv[at(0, t, head) + i];
            }
          }
        }
      return dqkv;
    }

    void softmax() {
      const size_t c = channels(), vocab = static_cast<size_t>(model_.config.vocab_size);
      const Values& wte = p("wte.weight");
      softmax_.assign(num_positions() * vocab, 0.0);
      for (size_t t = 0; t < num_positions(); ++t) {
        double sum = 0;
        for (size_t v = 0; v < vocab; ++v) {
          double logit = 0;
          for (size_t i = 0; i < c; ++i) logit += normed_[t * c + i] * wte[v * c + i];
          sum += softmax_[t * vocab + v] = std::exp(logit);
        }
        for (size_t v = 0; v < vocab; ++v) softmax_[t * vocab + v] /= sum;
        if (targets_[t] < 0) continue;
        loss_sum_ -= std::log(softmax_[t * vocab + static_cast<size_t>(targets_[t])]);
        ++num_valid_;
      }
    }

    const ReferenceGpt& model_;
    const int64_t row_;
    const std::span<const int32_t> tokens_, targets_;
    std::vector<Layer> layers_;
    Values last_, normed_, softmax_;
    double loss_sum_ = 0;
    int64_t num_valid_ = 0;
    NamedValues* gradients_ = nullptr;
  };

  template <typename F>
  void for_each_row(std::span<const int32_t> tokens, std::span<const int32_t> targets, int64_t seq_len, F&& f) const {
    const size_t length = static_cast<size_t>(seq_len);
    if (tokens.size() != targets.size() || tokens.size() % length != 0 || seq_len > config.seq_len)
      throw std::invalid_argument("tokens and targets must be whole rows of at most the model's positions");
    for (size_t begin = 0; begin < tokens.size(); begin += length) {
      RowPass pass(*this, static_cast<int64_t>(begin / length), tokens.subspan(begin, length),
                   targets.subspan(begin, length));
      f(pass);
    }
  }

  NamedValues first_moments_, second_moments_;
  int num_steps_ = 0;
};

}  // namespace sixfold::test
