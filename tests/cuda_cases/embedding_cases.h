#pragma once

#include "kernels/cuda/token_groups.h"
#include "tests/cuda_cases/gpu_run.h"

namespace sixfold::test {

/// Tokens below `vocab`, of which 0 has a third of all rows, and some have none.
inline std::vector<int32_t> uneven_tokens(int64_t rows, int64_t vocab) {
  std::vector<int32_t> tokens;
  for (int64_t r = 0; r < rows; ++r) tokens.push_back(static_cast<int32_t>(r % 3 == 1 ? 0 : (r * r + 3 * r) % vocab));
  return tokens;
}

/// Each token's rows ascend, whoever came first; tokens of other ranks are left out.
inline void check_token_groups(kernels::Context& context) {
  struct Case {
    int64_t rows, vocab, vocab_begin, vocab_end;
  };
  for (const Case& c : {Case{1, 1, 0, 1}, Case{7, 11, 0, 11}, Case{1000, 11, 3, 8}, Case{3000, 5000, 0, 5000},
                        Case{500, 1, 0, 1}, Case{5, 11, 20, 30}, Case{0, 4, 0, 4}}) {
    SCOPED_TRACE(testing::Message() << c.rows << " rows, " << c.vocab << " tokens from " << c.vocab_begin);
    GpuRun run(context, kGpuVariants[0]);
    const std::vector<int32_t> tokens = uneven_tokens(c.rows, c.vocab);
    const kernels::cuda::TokenGroups groups =
        kernels::cuda::group_by_token(context, run.ints(tokens, {c.rows}), c.vocab_begin, c.vocab_end - c.vocab_begin);
    const Tensor counts = kernels::on_host(context, groups.counts), begins = kernels::on_host(context, groups.begins);
    const Tensor rows = kernels::on_host(context, groups.rows);
    for (int64_t token = c.vocab_begin; token < c.vocab_end; ++token) {
      std::vector<int32_t> expected;
      for (size_t r = 0; r < tokens.size(); ++r)
        if (tokens[r] == token) expected.push_back(static_cast<int32_t>(r));
      const int64_t id = token - c.vocab_begin;
      ASSERT_EQ(counts.data<int32_t>()[id], static_cast<int32_t>(expected.size())) << token;
      if (expected.empty()) continue;
      const int32_t* group = rows.data<int32_t>() + begins.data<int32_t>()[id];
      ASSERT_EQ(std::vector<int32_t>(group, group + expected.size()), expected) << token;
    }
  }
}

/// Both directions have the CPU's bits: they only add, in the same order, what is f32 or exact as f32.
inline void check_token_embedding(kernels::Context& context) {
  constexpr int64_t kVocab = 11;
  for (const GpuVariant variant : kGpuVariants) {
    for (const int64_t rows : {1, 3, 129}) {
      for (const int64_t channels : {1, 33, 36, 132, 260}) {
        SCOPED_TRACE(testing::Message() << variant << ", " << rows << "x" << channels);
        GpuRun run(context, variant);
        KernelRun cpu(1, 0);
        const std::vector<int32_t> tokens = uneven_tokens(rows, kVocab);
        const Tensor ids = run.ints(tokens, {rows}), ids_of_cpu = cpu.input(tokens, {rows});
        const Floats weight = random_floats(kVocab * channels, 1), dy = random_floats(rows * channels, 2);
        const Floats start = random_floats(kVocab * channels, 3);
        // The whole vocabulary, then a rank's part of it.
        for (const auto& [begin, count] : {std::pair{int64_t{0}, kVocab}, std::pair{int64_t{2}, int64_t{5}}}) {
          const auto part = [&, begin = begin, count = count](const Floats& of) {
            return Floats(of.begin() + begin * channels, of.begin() + (begin + count) * channels);
          };
          const Shape table = {count, channels};
          const Tensor y = run.typed_output({rows, channels}), dweight = run.f32(part(start), table);
          kernels::token_embedding_forward(context, ids, run.typed(part(weight), table), begin, y);
          kernels::token_embedding_backward(context, ids, run.typed(dy, {rows, channels}), begin, dweight);
          const Tensor y_of_cpu = cpu.output({rows, channels}), dweight_of_cpu = cpu.output(part(start), table);
          kernels::token_embedding_forward(cpu.context, ids_of_cpu, cpu.input(run.rounded(part(weight)), table), begin,
                                           y_of_cpu);
          kernels::token_embedding_backward(cpu.context, ids_of_cpu, cpu.input(run.rounded(dy), {rows, channels}),
                                            begin, dweight_of_cpu);
          const std::vector<Floats> expected = cpu.outputs();
          EXPECT_TRUE(same_bits(run.read(y), expected[expected.size() - 2]));
          EXPECT_TRUE(same_bits(run.read(dweight), expected.back()));
        }
      }
    }
  }
}

/// As above, for positions that do not start at 0.
inline void check_position_embedding(kernels::Context& context) {
  for (const GpuVariant variant : kGpuVariants) {
    for (const int64_t num_rows : {1, 3, 21}) {
      for (const int64_t seq_len : {1, 7}) {
        for (const int64_t channels : {1, 33, 132}) {
          SCOPED_TRACE(testing::Message() << variant << ", " << num_rows << "x" << seq_len << "x" << channels);
          GpuRun run(context, variant);
          KernelRun cpu(1, 0);
          const kernels::TokenRows rows{nullptr, num_rows, seq_len, 2, 0};
          const Shape table = {seq_len + 4, channels}, shape = {num_rows * seq_len, channels};
          const Floats weight = random_floats(numel(table), 1), x = random_floats(numel(shape), 2);
          const Floats start = random_floats(numel(table), 3);
          const Tensor y = run.typed(x, shape), dweight = run.f32(start, table);
          kernels::position_embedding_forward(context, rows, run.typed(weight, table), y);
          kernels::position_embedding_backward(context, rows, run.typed(x, shape), dweight);
          kernels::position_embedding_forward(cpu.context, rows, cpu.input(run.rounded(weight), table),
                                              cpu.output(run.rounded(x), shape));
          kernels::position_embedding_backward(cpu.context, rows, cpu.input(run.rounded(x), shape),
                                               cpu.output(start, table));
          const std::vector<Floats> expected = cpu.outputs();
          EXPECT_TRUE(same_bits(run.read(y), run.rounded(expected[0])));
          EXPECT_TRUE(same_bits(run.read(dweight), expected[1]));
        }
      }
    }
  }
  GpuRun run(context, kGpuVariants[0]);
  const kernels::TokenRows beyond{nullptr, 1, 4, 5, 0};
  EXPECT_THROW(kernels::position_embedding_forward(context, beyond, run.typed_output({8, 2}), run.typed_output({4, 2})),
               CheckError);
}

}  // namespace sixfold::test
