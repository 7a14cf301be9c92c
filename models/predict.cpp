#include "models/predict.h"

#include <algorithm>

namespace sixfold::models {

namespace {

constexpr double kF32 = sizeof(float);

}  // namespace

std::vector<parallel::TagTraffic> predicted_traffic(const GptConfig& config, const GptCut& cut) {
  const double m = cut.num_micro_batches, layers = static_cast<double>(config.num_layers);
  const double rows = static_cast<double>(cut.micro_batch * config.seq_len / cut.sp);
  const double bytes = kF32 * rows * static_cast<double>(config.dim);  // S
  const double forwards = config.recompute ? 2 : 1;
  std::vector<parallel::TagTraffic> traffic;
  const auto add = [&](const std::string& tag, double sent) { traffic.push_back({tag, sent, 0}); };

  if (cut.tp > 1) {
    const double share = (cut.tp - 1.0) / cut.tp, whole = 2 * share * bytes * m, half = share * bytes * m;
    if (cut.sequence_parallel) {
      for (const std::string site : {"tp.attn_in", "tp.attn_out", "tp.mlp_in", "tp.mlp_out"}) {
        add(site, half * layers * forwards);
        add(site + ".grad", half * layers);
      }
      for (const char* tag : {"tp.embedding", "tp.embedding.grad", "tp.head_in", "tp.head_in.grad"}) add(tag, half);
      add("tp.regather", half * (2 * layers + 1));
      const double norms = (4 * layers + 2) * static_cast<double>(config.dim);
      const double positions = static_cast<double>(config.seq_len * config.dim);
      add("tp.grads", 2 * share * kF32 * (norms + positions) / cut.shards);
    } else {
      for (const char* tag : {"tp.attn_out", "tp.mlp_out"}) add(tag, whole * layers * forwards);
      for (const char* tag : {"tp.attn_in.grad", "tp.mlp_in.grad"}) add(tag, whole * layers);
      for (const char* tag : {"tp.embedding", "tp.head_in.grad"}) add(tag, whole);
    }
    add("tp.loss", 2 * share * 3 * kF32 * rows * m);
  }
  if (cut.sp > 1) {
    const double one = (cut.sp - 1.0) / cut.sp * bytes / cut.tp * layers * m;
    add("sp.qkv", 3 * one * forwards);
    add("sp.out", one * forwards);
    add("sp.out.grad", one);
    add("sp.qkv.grad", 3 * one);
  }
  return traffic;
}

int64_t predicted_activations(const GptConfig& config, const GptCut& cut) {
  const int64_t R = cut.micro_batch * config.seq_len / cut.sp, C = config.dim, K = C / cut.tp;
  const bool parallel = cut.sequence_parallel, exchanges = cut.sp > 1, overlaps = cut.tp > 1 && cut.overlap;
  const int64_t s = parallel ? 1 : 0, r = parallel ? R / cut.tp : R;
  const int64_t lse = R * config.num_heads / cut.tp, by_heads = exchanges ? R * K : 0;

  const int64_t block = 4 * r * C + 4 * r + 12 * R * K + lse + by_heads;
  const int64_t kept = config.num_layers * (config.recompute ? r * C : block);
  const int64_t at_work = config.recompute ? block - r * C : 0;  // of the block whose backward is under way

  const int64_t head = r * C + 2 * r + 3 * R + R * config.padded_vocab() / cut.tp +
                       (overlaps || parallel ? 2 * R * C + s * r * C : 3 * R * C) + 1;
  const int64_t tile = 64, scratch = cut.num_threads * ((2 * tile * tile + config.seq_len + 15) / 16 * 16);
  const int64_t left = overlaps ? -8 * R * K : r * C + (1 - s) * r * C + s * (2 * R * C - r * C);
  const int64_t mlp_in = 2 * r * C + 2 * s * R * C + 4 * R * K;
  const int64_t mlp_out = 2 * r * C + R * C + 2 * s * R * C;
  const int64_t attention = 2 * r * C + 2 * s * R * C + left + 4 * R * K + by_heads + scratch;
  const int64_t attention_in = mlp_out + left + R * K - lse - by_heads;
  const int64_t largest =
      std::max({head, at_work + mlp_in, at_work + mlp_out, at_work + attention, at_work + attention_in});
  return (kept + largest) * static_cast<int64_t>(kF32);
}

}  // namespace sixfold::models
