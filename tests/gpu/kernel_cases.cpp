// The kernels that train, on a GPU, each against the CPU's kernels and references in double precision: the cases that
// tests/cuda_*_test.cpp run without one. Outputs start as NaN; f32 and bf16.
//
//   build/kernel_cases                                            one test a family
//   build/kernel_cases --gtest_filter='*layernorm*'               some of them
//
// Exit status 1: a case failed; 2: no GPU.
#include <cstdio>

#include "kernels/queue.h"
#include "runtime/core/device.h"
#include "tests/cuda_cases/attention_cases.h"
#include "tests/cuda_cases/column_sums_cases.h"
#include "tests/cuda_cases/copies_cases.h"
#include "tests/cuda_cases/cross_entropy_cases.h"
#include "tests/cuda_cases/dropout_cases.h"
#include "tests/cuda_cases/elementwise_cases.h"
#include "tests/cuda_cases/embedding_cases.h"
#include "tests/cuda_cases/gemm_cases.h"
#include "tests/cuda_cases/layernorm_cases.h"
#include "tests/cuda_cases/number_cases.h"
#include "tests/cuda_cases/optimizer_cases.h"
#include "tests/cuda_cases/reference_attention_cases.h"

namespace sixfold::test {
namespace {

constexpr size_t kArenaBytes = size_t{2} << 30;
// Of f32: exp and tanh of a GPU are off by 2 ulp, where those of the CPU are by half a one.
constexpr double kSlack = 8;

struct Family {
  const char* name;
  void (*check)(kernels::Context& context);
};

std::ostream& operator<<(std::ostream& out, const Family& family) {
  return out << family.name;
}

using kernels::Context;

const Family kFamilies[] = {
    {"copies", check_copies},
    {"gelu", [](Context& c) { check_gelu(c, kSlack); }},
    {"accumulate", check_accumulate},
    {"convert", check_convert},
    {"swap_dims", check_swap_dims},
    {"dropout", check_dropout},
    {"dropout_of_nothing", check_dropout_of_nothing},
    {"column_sums", [](Context& c) { check_column_sums(c, kSlack); }},
    {"token_groups", check_token_groups},
    {"token_embedding", check_token_embedding},
    {"position_embedding", check_position_embedding},
    {"products", [](Context& c) { check_products(c, kSlack); }},
    {"batched_products", [](Context& c) { check_batched_products(c, kSlack); }},
    {"linears", [](Context& c) { check_linears(c, kSlack); }},
    {"layernorm", [](Context& c) { check_layernorm(c, kSlack); }},
    {"layernorm_of_large_mean", check_layernorm_of_large_mean},
    {"residual_layernorm", [](Context& c) { check_residual_layernorm(c, kSlack); }},
    {"flash_attention", [](Context& c) { check_attention(c, kSlack); }},
    {"flash_attention_of_large_scores", [](Context& c) { check_attention_of_large_scores(c, kSlack); }},
    {"flash_attention_bits", check_attention_bits},
    {"flash_attention_is_causal", check_attention_is_causal},
    {"reference_attention", [](Context& c) { check_reference_attention(c, kSlack); }},
    {"cross_entropy", [](Context& c) { check_cross_entropy(c, kSlack); }},
    {"cross_entropy_of_group", [](Context& c) { check_cross_entropy_of_group(c, false, kSlack); }},
    {"cross_entropy_of_far_group", [](Context& c) { check_cross_entropy_of_group(c, true, kSlack); }},
    {"cross_entropy_of_extremes", check_cross_entropy_of_extremes},
    {"adamw", [](Context& c) { check_adamw(c, kSlack); }},
    {"sgd", [](Context& c) { check_sgd(c, kSlack); }},
    {"skipped_update", check_skipped_update},
    {"sum_of_squares", check_sum_of_squares},
    {"exact_sum_of_squares", check_exact_sum_of_squares},
    {"reciprocal", check_reciprocal},
    {"fixed_point", check_fixed_point},
    {"clip_factor", check_clip_factor},
};

class KernelCases : public testing::TestWithParam<Family> {};

TEST_P(KernelCases, Hold) {
  Memory memory(make_device_allocator(kArenaBytes));
  const std::unique_ptr<kernels::Queue> queue = kernels::make_cuda_queue(memory.device());
  kernels::Context context{memory, 1, nullptr, queue.get()};
  GetParam().check(context);
}

INSTANTIATE_TEST_SUITE_P(Gpu, KernelCases, testing::ValuesIn(kFamilies), testing::PrintToStringParamName());

}  // namespace
}  // namespace sixfold::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const sixfold::CudaProbe probe = sixfold::probe_cuda();
  if (probe.num_devices == 0) {
    std::fprintf(stderr, "kernel_cases needs a GPU: %s\n", probe.problem.c_str());
    return 2;
  }
  return RUN_ALL_TESTS();
}
