// Layers cut over the ranks of a group beside the same layers whole, on every rank, with the same numbers.
#pragma once

#include <cmath>

#include "runtime/core/rng.h"
#include "runtime/parallel/init.h"
#include "runtime/parallel/tp_layers.h"
#include "tests/harness.h"

namespace sixfold::parallel {

/// Standard normal numbers, the same for the same key.
inline Tensor normal_tensor(Memory& memory, Shape shape, const std::string& key) {
  const Tensor x = Tensor::empty(std::move(shape), DType::F32, memory, Category::Other);
  NormalSequence normal(3, key);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = static_cast<float>(normal.at(i));
  return x;
}

/// Values by the index in the full tensor, 0 in the padding, so that pieces are of the same full tensor; no gradient.
inline void place(Parameter& parameter, Memory& memory) {
  parameter.value = Tensor::empty(parameter.local_shape(), DType::F32, memory, Category::Parameters);
  parameter.grad = Tensor::zeros(parameter.local_shape(), DType::F32, memory, Category::Gradients);
  parameter.init = {.std = 0.5f};
  initialize(memory, parameter, 7);
}

/// What `piece` of the full tensor holds, where spec cuts it.
inline Tensor piece_of(Memory& memory, const Tensor& full, const ShardSpec& spec) {
  const Tensor piece = Tensor::empty(spec.local_shape(full.shape()), DType::F32, memory, Category::Other);
  for (int64_t i = 0; i < piece.numel(); ++i) {
    piece.data<float>()[i] = full.data<float>()[spec.global_index(full.shape(), i)];
  }
  return piece;
}

inline void expect_close(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < actual.numel(); ++i) {
    const double e = expected.data<float>()[i];
    difference += std::pow(actual.data<float>()[i] - e, 2);
    norm += e * e;
  }
  EXPECT_LE(std::sqrt(difference), 2e-6 * std::sqrt(norm)) << what;
  EXPECT_GT(norm, 0) << what;
}

/// B = 3 sequences of T = 5 n positions, which n ranks cut evenly; tokens and targets below `vocab_size`, every fourth
/// target masked.
struct TpBatch {
  static constexpr int64_t kSequences = 3;

  TpBatch(Memory& memory, int64_t seq_len, int64_t vocab_size) {
    batch.sample_index = {5, 0, 9};
    batch.seq_len = seq_len;
    batch.tokens = Tensor::empty({kSequences * seq_len}, DType::I32, memory, Category::Other);
    batch.targets = Tensor::empty({kSequences * seq_len}, DType::I32, memory, Category::Other);
    for (int64_t i = 0; i < batch.tokens.numel(); ++i) {
      const auto token = [&](uint64_t key) {
        return static_cast<int32_t>(philox_hash(key, static_cast<uint64_t>(i)) % static_cast<uint64_t>(vocab_size));
      };
      batch.tokens.data<int32_t>()[i] = token(1);
      batch.targets.data<int32_t>()[i] = i % 4 == 3 ? -1 : token(2);
    }
  }
  int64_t num_rows() const { return batch.tokens.numel(); }

  MicroBatch batch;
};

/// The rows of `whole` that a rank of `tp` has between layers.
inline Tensor rows_between(Memory& memory, const TpGroup& tp, const MicroBatch& batch, const Tensor& whole) {
  if (!tp.cuts_positions(batch)) return piece_of(memory, whole, {});
  // Seen as [B, T, C], dim 1 is cut.
  const Tensor as_sequences = whole.reshape({batch.num_rows(), batch.seq_len, whole.dim(1)});
  const Tensor piece = piece_of(memory, as_sequences, tp.cut(1));
  return piece.reshape({piece.dim(0) * piece.dim(1), piece.dim(2)});
}

/// Runs body(world, cut, whole, batch) on 2, 3 and 4 ranks, with sequence parallelism and without. World `memory()` is
/// for everything.
template <typename Body>
void for_each_tp_group(int64_t vocab_size, const Body& body) {
  for (int n = 2; n <= 4; ++n) {
    for (const bool sequence_parallel : {false, true}) {
      SCOPED_TRACE(std::to_string(n) + " ranks" + (sequence_parallel ? ", sequence parallel" : ""));
      test::run_ranks(n, [&](comm::World& world) {
        const TpGroup cut(&world.group(), {.sequence_parallel = sequence_parallel, .overlap = true});
        TpBatch batch(world.memory(), 5 * n, vocab_size);
        body(world, cut, batch.batch);
      });
    }
  }
}

}  // namespace sixfold::parallel
