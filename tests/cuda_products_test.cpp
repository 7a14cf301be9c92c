// CublasProducts with cuBLASLt's own descriptions of problems, which need no GPU, and with functions of the test in the
// place of those that do: they read the descriptions back, and carry them out on the CPU as cuBLASLt's manual has it.
#include <gtest/gtest.h>

#ifndef SIXFOLD_HAS_CUDA

TEST(CublasProducts, NeedsABuildWithCuda) {
  GTEST_SKIP() << "this build has no CUDA";
}

#else

#include <dlfcn.h>

#include <algorithm>

#include "kernels/cuda/device/cublas_products.h"
#include "tests/kernels_harness.h"

namespace sixfold::test {
namespace {

using kernels::cuda::CublasApi;
using kernels::cuda::CublasProducts;
using kernels::cuda::Epilogue;
using kernels::cuda::Gemm;

/// What the functions in the library's place saw, and how they are to answer.
struct Library {
  int heuristics = 0, products = 0;
  uint64_t workspace_bytes = 0;
  uint32_t reductions = 0, a_alignment = 0, d_alignment = 0;
  cublasComputeType_t compute = {};
  cudaDataType_t a_type = {}, d_type = {};
  bool has_epilogues = true;
  cublasStatus_t heuristic_status = CUBLAS_STATUS_SUCCESS, product_status = CUBLAS_STATUS_SUCCESS;
};
Library library;

/// A function of the library that is loaded already.
template <typename F>
F* loaded(const char* name) {
  static void* handle = dlopen(("libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR)).c_str(), RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<F*>(dlsym(handle, name));
}

template <typename Value>
Value attribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which) {
  Value value{};
  size_t written = 0;
  static auto* get = loaded<decltype(cublasLtMatmulDescGetAttribute)>("cublasLtMatmulDescGetAttribute");
  EXPECT_EQ(get(desc, which, &value, sizeof(value), &written), CUBLAS_STATUS_SUCCESS);
  return value;
}
template <typename Value>
Value attribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which) {
  Value value{};
  size_t written = 0;
  static auto* get = loaded<decltype(cublasLtMatrixLayoutGetAttribute)>("cublasLtMatrixLayoutGetAttribute");
  EXPECT_EQ(get(layout, which, &value, sizeof(value), &written), CUBLAS_STATUS_SUCCESS);
  return value;
}
template <typename Value>
Value attribute(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t which) {
  Value value{};
  size_t written = 0;
  static auto* get = loaded<decltype(cublasLtMatmulPreferenceGetAttribute)>("cublasLtMatmulPreferenceGetAttribute");
  EXPECT_EQ(get(preference, which, &value, sizeof(value), &written), CUBLAS_STATUS_SUCCESS);
  return value;
}

cublasStatus_t create(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(&library);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t destroy(cublasLtHandle_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t,
                         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int,
                         cublasLtMatmulHeuristicResult_t* result, int* count) {
  ++library.heuristics;
  library.workspace_bytes = attribute<uint64_t>(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  library.reductions = attribute<uint32_t>(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
  library.a_alignment = attribute<uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  library.d_alignment = attribute<uint32_t>(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
  library.compute = attribute<cublasComputeType_t>(desc, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE);
  library.a_type = static_cast<cudaDataType_t>(attribute<uint32_t>(a, CUBLASLT_MATRIX_LAYOUT_TYPE));
  library.d_type = static_cast<cudaDataType_t>(attribute<uint32_t>(d, CUBLASLT_MATRIX_LAYOUT_TYPE));
  const auto epilogue = attribute<cublasLtEpilogue_t>(desc, CUBLASLT_MATMUL_DESC_EPILOGUE);
  *result = {};
  *count = library.has_epilogues || epilogue == CUBLASLT_EPILOGUE_DEFAULT ? 1 : 0;
  return library.heuristic_status;
}

/// The elements of a matrix in f32, stored by columns.
struct Stored {
  float* data;
  int64_t ld, batch_stride;
  Stored(const void* data_, cublasLtMatrixLayout_t layout)
      : data(static_cast<float*>(const_cast<void*>(data_))),
        ld(attribute<int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_LD)),
        batch_stride(attribute<int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)) {}
  float& at(int64_t batch, int64_t i, int64_t j) const { return data[batch * batch_stride + i + j * ld]; }
};

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  return (gelu(x + 1e-6) - gelu(x - 1e-6)) / 2e-6;
}

cublasStatus_t matmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a_data,
                      cublasLtMatrixLayout_t a_layout, const void* b_data, cublasLtMatrixLayout_t b_layout,
                      const void* beta, const void* c_data, cublasLtMatrixLayout_t c_layout, void* d_data,
                      cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t) {
  if (library.product_status != CUBLAS_STATUS_SUCCESS) return library.product_status;
  ++library.products;
  EXPECT_EQ(c_data, d_data);
  EXPECT_EQ(c_layout, d_layout);
  const Stored a(a_data, a_layout), b(b_data, b_layout), d(d_data, d_layout);
  const bool ta = attribute<int32_t>(desc, CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T;
  const bool tb = attribute<int32_t>(desc, CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_T;
  const auto m = static_cast<int64_t>(attribute<uint64_t>(d_layout, CUBLASLT_MATRIX_LAYOUT_ROWS));
  const auto n = static_cast<int64_t>(attribute<uint64_t>(d_layout, CUBLASLT_MATRIX_LAYOUT_COLS));
  const auto k = static_cast<int64_t>(
      attribute<uint64_t>(a_layout, ta ? CUBLASLT_MATRIX_LAYOUT_ROWS : CUBLASLT_MATRIX_LAYOUT_COLS));
  const auto epilogue = attribute<cublasLtEpilogue_t>(desc, CUBLASLT_MATMUL_DESC_EPILOGUE);
  const auto* bias = attribute<const float*>(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  auto* aux = attribute<float*>(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
  const auto aux_ld = attribute<int64_t>(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
  for (int x = 0; x < attribute<int32_t>(d_layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT); ++x)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p)
          sum += static_cast<double>(ta ? a.at(x, p, i) : a.at(x, i, p)) * (tb ? b.at(x, j, p) : b.at(x, p, j));
        sum *= static_cast<double>(*static_cast<const float*>(alpha));
        if (*static_cast<const float*>(beta) != 0) sum += static_cast<double>(d.at(x, i, j));
        if (epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
          sum += static_cast<double>(bias[i]);
        float& beside = aux == nullptr ? d.at(x, i, j) : aux[i + j * aux_ld];
        if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
          beside = static_cast<float>(sum);
          sum = gelu(sum);
        }
        if (epilogue == CUBLASLT_EPILOGUE_DGELU) sum *= gelu_slope(static_cast<double>(beside));
        d.at(x, i, j) = static_cast<float>(sum);
      }
  return CUBLAS_STATUS_SUCCESS;
}

constexpr size_t kWorkspaceBytes = 1000;

CublasProducts make_products() {
  library = {};
  const std::shared_ptr<CublasApi> api = CublasApi::load();
  api->Create = create;
  api->Destroy = destroy;
  api->MatmulAlgoGetHeuristic = heuristic;
  api->Matmul = matmul;
  return CublasProducts(api, nullptr, kWorkspaceBytes);
}

/// c [2, 3] = a [2, 4] b [4, 3] in rows with room between, and what epilogues have beside it.
struct Problem {
  alignas(256) float a[64], b[64], c[64], bias[64], aux[64];
  Problem() {
    uint32_t seed = 0;
    for (float* values : {a, b, c, bias, aux}) std::ranges::copy(random_floats(64, ++seed), values);
    std::ranges::fill(c, 7.0f);
  }
  Gemm gemm(Epilogue epilogue) {
    Gemm g;
    g.m = 2;
    g.n = 3;
    g.k = 4;
    g.a = {a, DType::F32, 5, false, 16};
    g.b = {b, DType::F32, 6, false, 24};
    g.c = {c, DType::F32, 8, false, 16};
    g.epilogue = epilogue;
    if (epilogue == Epilogue::Bias || epilogue == Epilogue::BiasGelu) g.bias = bias;
    if (epilogue == Epilogue::BiasGelu || epilogue == Epilogue::GeluBackward) g.aux = aux;
    return g;
  }
  double product(size_t i, size_t j, size_t batch = 0) const {
    double sum = 0;
    for (size_t p = 0; p < 4; ++p)
      sum += static_cast<double>(a[16 * batch + 5 * i + p]) * static_cast<double>(b[24 * batch + 6 * p + j]);
    return sum;
  }
};

TEST(CublasProducts, EpiloguesAreTheLibrarys) {
  CublasProducts products = make_products();
  for (const Epilogue epilogue : {Epilogue::None, Epilogue::Bias, Epilogue::BiasGelu, Epilogue::GeluBackward}) {
    Problem p;
    const Problem before = p;
    Gemm g = p.gemm(epilogue);
    g.scale = 0.5f;
    ASSERT_TRUE(products.multiply(g, nullptr));
    for (size_t i = 0; i < 2; ++i)
      for (size_t j = 0; j < 3; ++j) {
        SCOPED_TRACE(testing::Message() << "epilogue " << static_cast<int>(epilogue) << ", " << i << ", " << j);
        double expected = 0.5 * p.product(i, j);
        if (g.bias != nullptr) expected += static_cast<double>(p.bias[j]);
        if (epilogue == Epilogue::BiasGelu) {
          EXPECT_NEAR(static_cast<double>(p.aux[8 * i + j]), expected, 1e-6);
          expected = gelu(expected);
        }
        if (epilogue == Epilogue::GeluBackward) expected *= gelu_slope(static_cast<double>(before.aux[8 * i + j]));
        EXPECT_NEAR(static_cast<double>(p.c[8 * i + j]), expected, 1e-6);
      }
    EXPECT_EQ(p.c[3], 7.0f);  // between rows
  }
  EXPECT_EQ(library.products, 4);
}

TEST(CublasProducts, BatchesAndSums) {
  CublasProducts products = make_products();
  Problem p;
  Gemm g = p.gemm(Epilogue::None);
  g.batch = 2;
  g.accumulate = true;
  ASSERT_TRUE(products.multiply(g, nullptr));
  for (size_t batch = 0; batch < 2; ++batch)
    EXPECT_NEAR(static_cast<double>(p.c[16 * batch + 8 + 2]), 7 + p.product(1, 2, batch), 1e-5);
}

TEST(CublasProducts, AnAlgorithmIsChosenOncePerProblemAndAlignment) {
  CublasProducts products = make_products();
  Problem p, other;
  std::ranges::fill(other.bias, 1.0f);
  products.multiply(p.gemm(Epilogue::Bias), nullptr);
  EXPECT_EQ(library.heuristics, 1);
  products.multiply(other.gemm(Epilogue::Bias), nullptr);
  EXPECT_EQ(library.heuristics, 1);
  EXPECT_NEAR(other.c[0], other.product(0, 0) + static_cast<double>(other.bias[0]), 1e-6);  // with pointers of its own
  products.multiply(p.gemm(Epilogue::None), nullptr);
  EXPECT_EQ(library.heuristics, 2);
  Gemm shifted = p.gemm(Epilogue::None);
  shifted.b.data = p.b + 1;
  products.multiply(shifted, nullptr);
  EXPECT_EQ(library.heuristics, 3);
  EXPECT_EQ(library.a_alignment, 4u);  // the library's a is our b
  products.multiply(shifted, nullptr);
  EXPECT_EQ(library.heuristics, 3);
}

TEST(CublasProducts, AsksForFullPrecisionAndItsWorkspace) {
  CublasProducts products = make_products();
  Problem p;
  Gemm g = p.gemm(Epilogue::None);
  products.multiply(g, nullptr);
  EXPECT_EQ(library.compute, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(library.a_type, CUDA_R_32F);
  EXPECT_EQ(library.workspace_bytes, kWorkspaceBytes);
  EXPECT_EQ(library.reductions, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  g.a.dtype = g.b.dtype = DType::BF16;
  library.product_status = CUBLAS_STATUS_EXECUTION_FAILED;  // only what is asked for counts here
  EXPECT_THROW(products.multiply(g, nullptr), CommError);
  EXPECT_EQ(library.compute, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(library.a_type, CUDA_R_16BF);
  EXPECT_EQ(library.d_type, CUDA_R_32F);
}

TEST(CublasProducts, AnEpilogueThatIsNotOfferedIsLeftToTheCaller) {
  CublasProducts products = make_products();
  library.has_epilogues = false;
  Problem p;
  EXPECT_FALSE(products.multiply(p.gemm(Epilogue::BiasGelu), nullptr));
  EXPECT_FALSE(products.multiply(p.gemm(Epilogue::BiasGelu), nullptr));
  EXPECT_EQ(library.heuristics, 1);
  EXPECT_EQ(library.products, 0);
  EXPECT_TRUE(products.multiply(p.gemm(Epilogue::None), nullptr));
}

TEST(CublasProducts, ErrorsNameTheProductAndTheStatus) {
  const auto text_of = [](CublasProducts& products) {
    Problem p;
    try {
      products.multiply(p.gemm(Epilogue::None), nullptr);
    } catch (const CommError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string product = "matrix product [2, 4] x [4, 3], f32 to f32: ";
  CublasProducts refused = make_products();
  library.heuristic_status = CUBLAS_STATUS_NOT_SUPPORTED;
  EXPECT_EQ(text_of(refused).rfind(product + "CUBLAS_STATUS_NOT_SUPPORTED", 0), 0u) << text_of(refused);
  CublasProducts failing = make_products();
  library.product_status = CUBLAS_STATUS_EXECUTION_FAILED;
  EXPECT_EQ(text_of(failing).rfind(product + "CUBLAS_STATUS_EXECUTION_FAILED", 0), 0u) << text_of(failing);
}

TEST(CublasApi, SaysWhichLibraryIsMissing) {
  const std::string none[] = {"libno_such_library.so"};
  try {
    CublasApi::load(none);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("libno_such_library.so"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sixfold::test

#endif
