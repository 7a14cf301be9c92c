// The shape of a GPT-2 model, and shapes that have a name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sixfold::models {

struct GptConfig {
  int64_t num_layers = 6;
  int64_t num_heads = 6;
  int64_t dim = 384;           // channels C; the MLP is 4 C wide
  int64_t seq_len = 256;       // positions there are
  int64_t vocab_size = 256;    // 256: bytes
  int64_t vocab_multiple = 1;  // rows of the token table are padded to a multiple of this (of the tensor-parallel size)
  float dropout = 0;           // probability, see gpt.h for the places
  bool recompute = false;      // blocks keep only their input, and run their forward again before their backward
  uint64_t seed = 1;           // keys dropout masks

  /// Rows of the token table. Those from vocab_size on have no probability and no gradient.
  int64_t padded_vocab() const { return (vocab_size + vocab_multiple - 1) / vocab_multiple * vocab_multiple; }

  /// Throws ConfigError naming the flag, the value and the allowed values.
  void validate() const;
};

/// Layers, heads, dim, positions and vocabulary of a model by name; the rest as in a GptConfig{}.
///
///   tiny, small                                    for the bytes of a text, and CPUs
///   gpt2-124m, gpt2-350m, gpt2-774m, gpt2-1.5b     OpenAI's four sizes; the token table is padded to a multiple of 128
///
/// Throws ConfigError that names --model, `name` and the names there are. Source of layers and dims: Radford et al.,
/// "Language models are unsupervised multitask learners", 2019, table 2; heads are those of the published weights.
GptConfig preset(std::string_view name);
/// The names, smallest model first.
std::vector<std::string> preset_names();

}  // namespace sixfold::models
