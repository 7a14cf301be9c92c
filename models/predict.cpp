#include "models/predict.h"

#include <algorithm>
#include <map>
#include <set>

#include "kernels/temporaries.h"

namespace sixfold::models {

namespace {

constexpr int64_t kF32 = sizeof(float);

int64_t layers_of_chunk(const GptConfig& config, const GptCut& cut, int chunk) {
  const parallel::PipelineShape& pipeline = cut.pipeline;
  if (pipeline.num_chunks() == 1) return config.num_layers;
  const auto layers = parallel::split_layers(config.num_layers, pipeline.num_stages, pipeline.virtual_stages);
  return layers[static_cast<size_t>(chunk * pipeline.num_stages + cut.stage)];
}

bool has_head(const GptCut& cut, int chunk) {
  return cut.stage == cut.pipeline.num_stages - 1 && chunk == cut.pipeline.virtual_stages - 1;
}

}  // namespace

// ---- Traffic -------------------------------------------------------------------------------------------------------

std::vector<parallel::TagTraffic> predicted_traffic(const GptConfig& config, const GptCut& cut,
                                                    const comm::Communicator& tp_group,
                                                    const comm::Communicator& sp_group) {
  using comm::Primitive;
  const int64_t m = cut.pipeline.num_micro_batches, rows = cut.micro_batch * config.seq_len / cut.sp;
  const int64_t forwards = config.recompute ? 2 : 1, elements = rows * config.dim;
  const auto element_bytes = static_cast<int64_t>(dtype_bytes(cut.dtype));
  const bool first = cut.stage == 0, last = cut.stage == cut.pipeline.num_stages - 1;
  int64_t layers = 0;
  for (int chunk = 0; chunk < cut.pipeline.virtual_stages; ++chunk) layers += layers_of_chunk(config, cut, chunk);

  std::vector<parallel::TagTraffic> traffic;
  // `calls` a micro-batch, of `count` elements each (as in comm::Call).
  const auto add = [&](const std::string& tag, int64_t calls, const comm::Communicator& group, Primitive primitive,
                       int64_t count) {
    const double sent = group.predicted_sent_elements(primitive, static_cast<size_t>(count), cut.dtype);
    if (calls > 0) traffic.push_back({tag, sent * static_cast<double>(calls * m * element_bytes), 0});
  };
  const int64_t embedding = first ? 1 : 0, head = last ? 1 : 0;
  if (cut.tp > 1 && cut.sequence_parallel) {
    const int64_t own = elements / cut.tp;
    for (const std::string half : {"tp.attn", "tp.mlp"}) {
      add(half + "_in", layers * forwards, tp_group, Primitive::AllGather, own);
      add(half + "_in.grad", layers, tp_group, Primitive::ReduceScatter, own);
      add(half + "_out", layers * forwards, tp_group, Primitive::ReduceScatter, own);
      add(half + "_out.grad", layers, tp_group, Primitive::AllGather, own);
    }
    add("tp.embedding", embedding, tp_group, Primitive::ReduceScatter, own);
    add("tp.embedding.grad", embedding, tp_group, Primitive::AllGather, own);
    add("tp.head_in", head, tp_group, Primitive::AllGather, own);
    add("tp.head_in.grad", head, tp_group, Primitive::ReduceScatter, own);
    add("tp.regather", 2 * layers + head, tp_group, Primitive::AllGather, own);
  } else if (cut.tp > 1) {
    for (const std::string half : {"tp.attn", "tp.mlp"}) {
      add(half + "_out", layers * forwards, tp_group, Primitive::AllReduce, elements);
      add(half + "_in.grad", layers, tp_group, Primitive::AllReduce, elements);
    }
    add("tp.embedding", embedding, tp_group, Primitive::AllReduce, elements);
    add("tp.head_in.grad", head, tp_group, Primitive::AllReduce, elements);
  }
  if (cut.tp > 1 && last) {
    const auto sent = [&](int64_t count) {
      return tp_group.predicted_sent_elements(Primitive::AllReduce, static_cast<size_t>(count), DType::F32);
    };
    traffic.push_back({"tp.loss", (sent(rows) + sent(2 * rows)) * static_cast<double>(m * kF32), 0});
  }
  if (cut.sp > 1) {
    const int64_t block = elements / cut.tp / cut.sp;
    add("sp.qkv", layers * forwards, sp_group, Primitive::AllToAll, 3 * block);
    add("sp.out", layers * forwards, sp_group, Primitive::AllToAll, block);
    add("sp.out.grad", layers, sp_group, Primitive::AllToAll, block);
    add("sp.qkv.grad", layers, sp_group, Primitive::AllToAll, 3 * block);
  }
  return traffic;
}

// ---- Activations ---------------------------------------------------------------------------------------------------

namespace {

/// Bytes by the formulas of the header, in its letters.
struct Bytes {
  int64_t travelling;         // r C
  int64_t block, head;        // kept
  int64_t at_block, at_head;  // the largest moment of a backward, on top of what is kept

  Bytes(const GptConfig& config, const GptCut& cut) {
    const auto e = static_cast<int64_t>(dtype_bytes(cut.dtype));
    const int64_t R = cut.micro_batch * config.seq_len / cut.sp, C = config.dim, K = C / cut.tp;
    const bool parallel = cut.sequence_parallel, overlaps = cut.tp > 1 && cut.overlap;
    const int64_t s = parallel ? 1 : 0, r = parallel ? R / cut.tp : R;
    const int64_t lse = kF32 * R * config.num_heads / cut.tp, by_heads = cut.sp > 1 ? e * R * K : 0;
    travelling = e * r * C;
    const int64_t whole_block = e * (4 * r * C + 12 * R * K) + kF32 * 4 * r + lse + by_heads;
    block = config.recompute ? travelling : whole_block;
    head = e * (2 * r * C + R * config.padded_vocab() / cut.tp) + kF32 * (2 * r + 3 * R);

    const int64_t heads = config.num_heads / cut.tp / cut.sp, tokens = R * cut.sp;  // in attention
    const int64_t D = config.dropout > 0 ? kernels::dropout_temporaries(cut.device, C, cut.num_threads) : 0;
    const int64_t A =
        kernels::attention_backward_temporaries(cut.device, tokens, config.seq_len, heads, cut.num_threads);
    const bool sums = overlaps && (!parallel || cut.micro_batch == 1);
    const int64_t W = sums ? kernels::column_sum_temporaries(cut.device, R, C) : 0;
    const int64_t left = e * (overlaps ? -8 * R * K : r * C + (1 - s) * r * C + s * (2 * R * C - r * C));
    const int64_t input = e * (2 * r * C + R * C + 2 * s * R * C);
    const int64_t mlp =
        std::max({e * (2 * r * C + s * R * C) + D, e * (2 * r * C + 2 * s * R * C + 4 * R * K), input + W});
    const int64_t attention = std::max({e * (2 * r * C + s * R * C) + left + D,
                                        e * (2 * r * C + 2 * s * R * C + 4 * R * K) + left + by_heads + A,
                                        input + left + e * R * K - lse - by_heads + W});
    at_block = std::max(mlp, attention) + whole_block - block;
    at_head = e * (overlaps && !parallel ? R * C : 2 * R * C);
  }
};

}  // namespace

std::optional<int64_t> predicted_activations(const GptConfig& config, const GptCut& cut) {
  using Kind = parallel::Action::Kind;
  if (!kernels::attention_streams(cut.device, config.dim / config.num_heads)) return {};
  const Bytes bytes(config, cut);
  const auto actions = parallel::pipeline_schedule(cut.pipeline)[static_cast<size_t>(cut.stage)];
  std::map<Kind, int> num_left;  // receives; a stage has one lane of each kind
  for (const parallel::Action& action : actions) ++num_left[action.kind];
  std::set<Kind> sent;
  int64_t in_flight = 0, peak = 0;
  for (const parallel::Action& action : actions) {
    --num_left[action.kind];
    const int64_t head = has_head(cut, action.chunk) ? bytes.head : 0;
    const int64_t kept = layers_of_chunk(config, cut, action.chunk) * bytes.block + head;
    if (action.kind == Kind::Forward) {
      in_flight += kept;
    } else if (action.kind == Kind::Backward) {
      const int64_t posted = (num_left[Kind::RecvActivation] > 0) + (num_left[Kind::RecvGradient] > 0);
      const int64_t lanes = (posted + static_cast<int64_t>(sent.size())) * bytes.travelling;
      peak = std::max(peak, in_flight + lanes + std::max(head > 0 ? bytes.at_head : 0, bytes.at_block - head));
      in_flight -= kept;
    } else if (action.kind == Kind::SendActivation || action.kind == Kind::SendGradient) {
      sent.insert(action.kind);
    }
  }
  return peak;
}

}  // namespace sixfold::models
