// What tensor and sequence parallelism send, and what activations a GPT keeps, by formulas from its sizes alone:
// something independent for what links and memory have counted to be compared with (parallel/predict.h has the same for
// strategies and for what stages send to one another).
//
// Sizes of one rank and micro-batch: B rows of T positions on this rank (T = seq_len / sp), R = B T; r = R / N rows
// between layers with Megatron's sequence parallelism, else r = R; L layers of the rank's stage, C channels, H heads, V
// vocabulary rows with padding, N tensor-parallel ranks, n ranks of the sequence, m micro-batches a step, S bytes of R
// C activations (4 R C of f32, 2 R C of bf16).
#pragma once

#include <optional>
#include <vector>

#include "models/config.h"
#include "runtime/parallel/predict.h"

namespace sixfold::models {

/// How a GPT is cut and fed.
struct GptCut {
  int tp = 1;
  bool sequence_parallel = false;    // of the tp ranks (Megatron)
  bool overlap = true;               // TpOptions::overlap
  int sp = 1;                        // Ulysses
  parallel::PipelineShape pipeline;  // of a step
  int stage = 0;
  int64_t micro_batch = 1;   // rows
  int num_threads = 1;       // of kernels
  DType dtype = DType::F32;  // of activations
  DeviceType device = DeviceType::Cpu;
};

/// One a tag that a step of training sends under on a stage, without those of whole steps ("tp.norm", a few numbers;
/// "tp.grads", which depends on the strategy: parallel::partial_elements); none where nothing is cut. Per block and
/// micro-batch, in units of (N-1)/N S and with every tag's gradient named TAG.grad:
///
///   tp                  attn_out 2, mlp_out 2, attn_in.grad 2, mlp_in.grad 2                      8: AllReduce
///   sequence parallel   attn_in, attn_out, mlp_in, mlp_out and their gradients 1 each, regather 2  10
///   sp                  sp.qkv 3, sp.out 1 and their gradients, in units of (n-1)/n S / N
///                       (S is of n-th of the sequence: 8 AllToAlls of B seq_len C / n / N elements)
///
/// The first stage adds, a micro-batch, as much as a row-parallel linear for the embedding, the last as much as a
/// column-parallel one for the head, and two AllReduces for the loss, of R and of 2 R floats, f32 beside any
/// activations. Recomputation sends forward's part of the blocks twice.
///
/// These are what a ring sends, and direct where it goes in two shots. Each AllReduce counts by the formula of the
/// algorithm that it takes in its group, which for a small one, such as the loss, may be another. `tp_group` and
/// `sp_group` are of cut.tp and cut.sp ranks.
std::vector<parallel::TagTraffic> predicted_traffic(const GptConfig& config, const GptCut& cut,
                                                    const comm::Communicator& tp_group,
                                                    const comm::Communicator& sp_group);

/// Peak bytes of activations of a rank in training, with attention that keeps no matrix of scores; none where the
/// device's does (kernels::attention_streams()). Elements that stay from forward to backward (block.cpp, ends.cpp),
/// with K = C / N; those in parentheses are f32, the others of the activations' dtype:
///
///   block   4 r C + 12 R K + (4 r + R H / N), and R K more with sp: the output of attention by heads;
///           recomputed, its input r C
///   head    2 r C + R V / N + (2 r + 3 R)
///
/// A stage keeps those of all micro-batches in flight: with gpipe m, with 1f1b min(m, p - stage), with interleaved 1f1b
/// as many chunks as pipeline_schedule.h says. So the peak is at a backward, when its own chunk is still whole. To that
/// come r C for each lane of the pipeline (pipeline.h) that something was sent on or is still to be received on, and
/// the largest of the moments of that backward: the residual's gradient r C included, where a block works without what
/// the head has kept, and recomputed with its whole block. s = 1 with sequence parallelism, else 0:
///
///   head        2 R C, when its input's gradient is worked out; or R C + s R C where tensor parallelism overlaps or
///               s = 1, since weight gradients come before the residual's
///   MLP, drop   2 r C + s R C + D
///   MLP, in     2 r C + 2 s R C + 4 R K    gelu's input and its gradient are both there
///   MLP, out    2 r C + R C + 2 s R C + W  the gradient of the half's input
///   attention   2 r C + 2 s R C + E + 4 R K + A, and R K with sp; with dropout 2 r C + s R C + E + D
///   its input   2 r C + R C + 2 s R C + E + R K - (R H / N) + W, less R K with sp
///
/// E is what the MLP half has left behind by then: its gradients, r C + (1 - s) r C + s (2 R C - r C), where weights
/// are left to backward_weights; where they overlap, they are done and the half's 8 R K gone: -8 R K. The rest is what
/// kernels need while they run (kernels/temporaries.h):
///
///   D   dropout on rows of C channels, where something is dropped
///   A   attention's backward, of B T n tokens and H / N / n heads
///   W   the sum over R rows of C columns that a bias' gradient is
///
/// W counts where weights overlap; but not where s = 1 and B > 1, for there the gradient that travels is a packed copy,
/// and no activation. What forwards and other kernels need besides is less than that.
std::optional<int64_t> predicted_activations(const GptConfig& config, const GptCut& cut);

}  // namespace sixfold::models
