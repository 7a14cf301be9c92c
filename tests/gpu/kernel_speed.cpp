// How fast the kernels that train are on a GPU, at the sizes of GPT-2 124M: 8 rows of 1024 tokens, 12 heads of 64
// channels. Matrix products and attention as a share of the largest product's rate, the rest as a share of what a copy
// inside the GPU's memory moves; both are measured in the same run.
//
//   build/kernel_speed        f32 and bf16
//
// FLOP of attention are those of the pairs that causality leaves: 2 B H T^2 D forward and 5 B H T^2 D backward. Bytes
// are those that a kernel must read and write. Exit status 1: something failed; 2: no GPU.
#include <cstdio>
#include <functional>
#include <string>

#include "kernels/cuda/flash_attention.h"
#include "kernels/cuda/reference_attention.h"
#include "kernels/gemm_rate.h"
#include "kernels/queue.h"
#include "runtime/core/device.h"
#include "runtime/core/dtype.h"
#include "runtime/core/rng.h"
#include "tests/gpu/timing.h"

namespace sixfold::test {
namespace {

constexpr size_t kArenaBytes = size_t{8} << 30;
constexpr int kWarmups = 3, kRepeats = 20;
constexpr int64_t kRows = 8, kSeqLen = 1024, kHeads = 12, kHeadDim = 64, kTokens = kRows * kSeqLen;
constexpr int64_t kChannels = kHeads * kHeadDim, kVocab = 50257, kPaddedVocab = 50304, kParameters = 124'439'808;

/// Times kernels of one dtype. Sections have a Memory of their own, since one keeps what has been freed.
class Speed {
 public:
  Speed(std::shared_ptr<Allocator> allocator, kernels::Queue& queue, DType dtype, double copy_bytes_per_s)
      : memory_(std::move(allocator)),
        context{memory_, 1, nullptr, &queue, dtype},
        copy_rate_(copy_bytes_per_s),
        gemm_rate_(kernels::measure_gemm_rate(context) * 1e9) {}

  double gemm_rate() const { return gemm_rate_; }
  Tensor empty(Shape shape, DType dtype) {
    return Tensor::empty(std::move(shape), dtype, context.memory, Category::Other);
  }
  Tensor empty(Shape shape) { return empty(std::move(shape), context.dtype); }
  /// Values of the order of 1/16, which no product makes large: a GPU is slower at them than at zeros.
  Tensor filled(const Shape& shape, DType dtype) {
    const Tensor t = empty(shape, dtype);
    const int64_t num_drawn = std::min<int64_t>(t.numel(), 1 << 16);
    const Tensor host = Tensor::of_host({num_drawn}, DType::F32);
    for (int64_t i = 0; i < num_drawn; ++i) {
      const PhiloxBlock bits = philox({1, 2}, {static_cast<uint32_t>(i), 0, 0, 0});
      host.data<float>()[i] = static_cast<float>(normal_pair(bits[0], bits[1])[0]) / 16;
    }
    kernels::floats_from_host(context, host, t.slice(0, {num_drawn}));
    for (int64_t at = num_drawn; at < t.numel(); at += at) {
      const int64_t count = std::min(at, t.numel() - at);
      kernels::copy(context, t.slice(0, {count}), t.slice(at, {count}));
    }
    return t;
  }
  Tensor filled(const Shape& shape) { return filled(shape, context.dtype); }

  void products(const std::string& name, double flop, const std::function<void()>& run) {
    const double seconds = kernel_seconds(run);
    line(name, seconds, flop / seconds * 1e-12, "TFLOP/s", flop / seconds / gemm_rate_, "a product");
  }
  void passes(const std::string& name, double bytes, const std::function<void()>& run) {
    const double seconds = kernel_seconds(run);
    line(name, seconds, bytes / seconds * 1e-9, "GB/s", bytes / seconds / copy_rate_, "a copy");
  }

 private:
  Memory memory_;

 public:
  kernels::Context context;

 private:
  double kernel_seconds(const std::function<void()>& run) const {
    return seconds_of(static_cast<cudaStream_t>(context.queue->stream()), kWarmups, kRepeats, run);
  }
  void line(const std::string& name, double seconds, double rate, const char* unit, double share,
            const char* of) const {
    std::printf("%-4s %-36s %10.1f us %9.1f %-7s %4.0f%% of %s\n", std::string(dtype_name(context.dtype)).c_str(),
                name.c_str(), seconds * 1e6, rate, unit, 100 * share, of);
    std::fflush(stdout);
  }

  const double copy_rate_, gemm_rate_;
};

/// Forward and both backwards of one linear layer, [kTokens, in] to [kTokens, out].
void time_linear(Speed& speed, const std::string& name, int64_t in, int64_t out) {
  const Tensor x = speed.filled({kTokens, in}), w = speed.filled({in, out}), bias = speed.filled({out});
  const Tensor y = speed.filled({kTokens, out}), dx = speed.empty({kTokens, in});
  const Tensor dw = speed.filled({in, out}, DType::F32), dbias = speed.filled({out}, DType::F32);
  const double flop = 2.0 * static_cast<double>(kTokens * in * out);
  kernels::Context& context = speed.context;
  speed.products(name + " forward", flop, [&] { kernels::linear_forward(context, x, w, bias, y); });
  speed.products(name + " backward, input", flop, [&] { kernels::linear_backward_input(context, y, w, dx); });
  speed.products(name + " backward, weight", flop, [&] { kernels::linear_backward_weight(context, x, y, dw, dbias); });
}

/// What is fused to the MLP's products, and the same GELU alone.
void time_gelu(Speed& speed) {
  const int64_t wide = 4 * kChannels;
  const Tensor x = speed.filled({kTokens, kChannels}), w = speed.filled({kChannels, wide}), bias = speed.filled({wide});
  const Tensor hidden = speed.empty({kTokens, wide}), activated = speed.empty({kTokens, wide});
  const Tensor w_back = speed.filled({wide, kChannels});
  const double flop = 2.0 * static_cast<double>(kTokens * kChannels * wide);
  const double pass = static_cast<double>(hidden.bytes());
  kernels::Context& context = speed.context;
  speed.products("mlp.c_fc and gelu forward", flop,
                 [&] { kernels::linear_gelu_forward(context, x, w, bias, hidden, activated); });
  speed.products("mlp.c_proj and gelu backward, input", flop,
                 [&] { kernels::linear_gelu_backward_input(context, x, w_back, hidden, activated); });
  speed.passes("gelu forward", 2 * pass, [&] { kernels::gelu_forward(context, hidden, activated); });
  speed.passes("gelu backward", 3 * pass, [&] { kernels::gelu_backward(context, activated, hidden, activated); });
}

void time_attention(Speed& speed) {
  const Tensor qkv = speed.filled({kTokens, 3 * kChannels}), dout = speed.filled({kTokens, kChannels});
  const Tensor out = speed.empty({kTokens, kChannels}), dqkv = speed.empty({kTokens, 3 * kChannels});
  const Tensor lse = speed.empty({kRows, kHeads, kSeqLen}, DType::F32);
  const double pair_flop = static_cast<double>(kRows * kHeads * kSeqLen * kSeqLen * kHeadDim);
  kernels::Context& context = speed.context;
  speed.products("flash attention forward", 2 * pair_flop,
                 [&] { kernels::cuda::attention_flash_forward(context, qkv, kSeqLen, kHeads, out, lse); });
  speed.products("flash attention backward", 5 * pair_flop,
                 [&] { kernels::cuda::attention_flash_backward(context, dout, qkv, out, lse, kSeqLen, kHeads, dqkv); });
  speed.products("attention by whole matrices, forward", 2 * pair_flop,
                 [&] { kernels::cuda::attention_reference_forward(context, qkv, kSeqLen, kHeads, out, lse); });
  speed.products("attention by whole matrices, backward", 5 * pair_flop,
                 [&] { kernels::cuda::attention_reference_backward(context, dout, qkv, lse, kSeqLen, kHeads, dqkv); });
}

void time_classifier(Speed& speed) {
  const Tensor x = speed.filled({kTokens, kChannels}), table = speed.filled({kPaddedVocab, kChannels});
  const Tensor logits = speed.empty({kTokens, kPaddedVocab});
  const Tensor dx = speed.empty({kTokens, kChannels}), dtable = speed.filled({kPaddedVocab, kChannels}, DType::F32);
  const Tensor row_max = speed.empty({kTokens}, DType::F32), stats = speed.empty({kTokens, 2}, DType::F32);
  const Tensor targets = kernels::zeros(speed.context, {kTokens}, DType::I32, Category::Other);
  const Tensor scale = speed.filled({1}, DType::F32);
  const double flop = 2.0 * static_cast<double>(kTokens * kChannels * kPaddedVocab);
  const double pass = static_cast<double>(logits.bytes());
  kernels::Context& context = speed.context;
  speed.products("head forward", flop, [&] { kernels::matmul(context, false, true, x, table, logits, false); });
  speed.passes("classifier, statistics", pass,
               [&] { kernels::cross_entropy_statistics(context, logits, targets, 0, kVocab, row_max, stats); });
  speed.passes("classifier, gradient in place", 2 * pass,
               [&] { kernels::cross_entropy_backward(context, targets, 0, kVocab, row_max, stats, scale, logits); });
  speed.products("head backward, input", flop,
                 [&] { kernels::matmul(context, false, false, logits, table, dx, false); });
  speed.products("head backward, weight", flop,
                 [&] { kernels::matmul(context, true, false, logits, x, dtable, true); });
}

void time_layernorm(Speed& speed) {
  constexpr float kEps = 1e-5f;
  const Shape shape{kTokens, kChannels};
  const Tensor x = speed.filled(shape), gamma = speed.filled({kChannels}), beta = speed.filled({kChannels});
  const Tensor residual = speed.filled(shape), sum = speed.empty(shape), y = speed.empty(shape);
  const Tensor dx = speed.filled(shape);
  const Tensor mean = speed.empty({kTokens}, DType::F32), rstd = speed.empty({kTokens}, DType::F32);
  const Tensor dgamma = speed.filled({kChannels}, DType::F32), dbeta = speed.filled({kChannels}, DType::F32);
  const double pass = static_cast<double>(x.bytes());
  kernels::Context& context = speed.context;
  speed.passes("layernorm forward", 2 * pass,
               [&] { kernels::layernorm_forward(context, x, gamma, beta, kEps, y, mean, rstd); });
  const kernels::DropoutSite site;
  const kernels::TokenRows rows{nullptr, kRows, kSeqLen};
  speed.passes("layernorm of the residual's sum", 4 * pass, [&] {
    kernels::residual_layernorm_forward(context, site, rows, x, residual, gamma, beta, kEps, sum, y, mean, rstd);
  });
  speed.passes("layernorm backward, input", 4 * pass,
               [&] { kernels::layernorm_backward_input(context, y, sum, gamma, mean, rstd, dx); });
  speed.passes("layernorm backward, weight", 2 * pass,
               [&] { kernels::layernorm_backward_weight(context, y, sum, mean, rstd, dgamma, dbeta); });
}

/// Of f32 master weights and moments, whatever the dtype; with bf16, weights that kernels read are written, too.
void time_adamw(Speed& speed) {
  const Tensor g = speed.filled({kParameters}, DType::F32), w = speed.filled({kParameters}, DType::F32);
  const Tensor m = kernels::zeros(speed.context, {kParameters}, DType::F32, Category::Other);
  const Tensor v = kernels::zeros(speed.context, {kParameters}, DType::F32, Category::Other);
  const Tensor rounded = speed.context.dtype == DType::BF16 ? speed.empty({kParameters}) : Tensor();
  const double bytes = 7.0 * static_cast<double>(w.bytes()) + static_cast<double>(rounded.bytes());
  speed.passes("adamw", bytes, [&] {
    kernels::adamw_update(speed.context, {.lr = 1e-4f, .weight_decay = 0.1f, .step = 1}, {}, g, w, m, v, rounded);
  });
}

int run() {
  const CudaProbe probe = probe_cuda();
  if (probe.num_devices == 0) {
    std::fprintf(stderr, "kernel_speed needs a GPU: %s\n", probe.problem.c_str());
    return 2;
  }
  const std::shared_ptr<Allocator> allocator = make_device_allocator(kArenaBytes);
  const std::unique_ptr<kernels::Queue> queue = kernels::make_cuda_queue(allocator->device());
  const DeviceSpeed device = measure_device();
  std::printf("%s: a copy inside its memory reads and writes %.0f GB/s\n", device.name.c_str(),
              device.copy_bytes_per_s * 1e-9);
  for (const DType dtype : {DType::BF16, DType::F32}) {
    const auto section = [&](const std::function<void(Speed&)>& time) {
      Speed speed(allocator, *queue, dtype, device.copy_bytes_per_s);
      time(speed);
    };
    section([](Speed& speed) {
      std::printf("%s: a product of 8192 x 8192 x 8192 has %.1f TFLOP/s\n",
                  std::string(dtype_name(speed.context.dtype)).c_str(), speed.gemm_rate() * 1e-12);
      time_linear(speed, "attn.c_attn", kChannels, 3 * kChannels);
      time_linear(speed, "attn.c_proj", kChannels, kChannels);
      time_linear(speed, "mlp.c_fc", kChannels, 4 * kChannels);
      time_linear(speed, "mlp.c_proj", 4 * kChannels, kChannels);
    });
    for (const auto& time : {time_gelu, time_attention, time_classifier, time_layernorm, time_adamw}) section(time);
  }
  return 0;
}

}  // namespace
}  // namespace sixfold::test

int main() {
  return sixfold::test::exit_status(sixfold::test::run);
}
