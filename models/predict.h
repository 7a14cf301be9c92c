// What tensor and sequence parallelism send, and what activations a GPT keeps, by formulas from its sizes alone:
// something independent for what links and memory have counted to be compared with (parallel/predict.h has the same for
// strategies).
//
// Sizes of one rank and micro-batch: B rows of T positions on this rank (T = seq_len / sp), R = B T; r = R / N rows
// between layers with Megatron's sequence parallelism, else r = R; L layers, C channels, H heads, V vocabulary rows
// with padding, N tensor-parallel ranks, n ranks of the sequence, m micro-batches a step, S = 4 R C bytes.
#pragma once

#include <vector>

#include "models/config.h"
#include "runtime/parallel/predict.h"

namespace sixfold::models {

/// How a GPT is cut and fed.
struct GptCut {
  int tp = 1;
  bool sequence_parallel = false;  // of the tp ranks (Megatron)
  bool overlap = true;             // TpOptions::overlap
  int sp = 1;                      // Ulysses
  int shards = 1;                  // that the strategy keeps gradients in: "tp.grads" is of one
  int64_t micro_batch = 1;         // rows
  int num_micro_batches = 1;       // of a step
  int num_threads = 1;             // of kernels
};

/// One a tag that a step of training sends under, without those of whole steps that are a few numbers ("tp.norm"); none
/// where nothing is cut. Per block and micro-batch, in units of (N-1)/N S and with every tag's gradient named TAG.grad:
///
///   tp                  attn_out 2, mlp_out 2, attn_in.grad 2, mlp_in.grad 2                      8: AllReduce
///   sequence parallel   attn_in, attn_out, mlp_in, mlp_out and their gradients 1 each, regather 2  10
///   sp                  sp.qkv 3, sp.out 1 and their gradients, in units of (n-1)/n S / N
///                       (S is of n-th of the sequence: 8 AllToAlls of B seq_len C / n / N elements)
///
/// Embedding and head add, a micro-batch, as much as a row- and a column-parallel linear; the loss 2(N-1)/N 12 R bytes
/// (by a ring; small operations may take another algorithm); "tp.grads" a step 2(N-1)/N of the 4 bytes of each element
/// of norms and position table, with shards the mean over the ranks. Recomputation sends forward's part of the blocks
/// twice.
std::vector<parallel::TagTraffic> predicted_traffic(const GptConfig& config, const GptCut& cut);

/// Peak bytes of activations of a rank in training, f32, with streaming attention. Floats that stay from a block's
/// forward to its backward (block.cpp), with K = C / N:
///
///   block   4 r C + 4 r + R (12 K + H / N), and R K more with sp: the output of attention by heads
///
/// Scratch of kernels counts in attention alone; where small models make that of others matter, it is not in here.
///
/// All L are kept when the peak comes, or, recomputed, the inputs r C of all and the rest of one. To that comes the
/// largest of these moments, the residual's gradient r C included; s = 1 with sequence parallelism, else 0:
///
///   head        r C + 2 r + 3 R + R V / N  and, when its input's gradient is worked out, 3 R C; or 2 R C + s r C where
///               tensor parallelism overlaps or s = 1, since weight gradients come before the residual's
///   MLP, in     2 r C + 2 s R C + 4 R K    gelu's input and its gradient are both there
///   MLP, out    2 r C + R C + 2 s R C      the gradient of the half's input
///   attention   2 r C + 2 s R C + E + 4 R K, and R K with sp, and two tiles of 64 x 64 and T n floats a thread
///   its input   2 r C + R C + 2 s R C + E + R K - R H / N, less R K with sp
///
/// E is what the MLP half has left behind by then: its gradients, r C + (1 - s) r C + s (2 R C - r C), where weights
/// are left to backward_weights; where they overlap, they are done and the half's 8 R K floats gone: -8 R K.
int64_t predicted_activations(const GptConfig& config, const GptCut& cut);

}  // namespace sixfold::models
