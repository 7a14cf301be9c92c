#include "kernels/cuda/device/cublas_products.h"

#include <string>
#include <utility>

namespace sixfold::kernels::cuda {

namespace {

/// One of the library's objects, which ends with this.
template <typename Object>
class Owned {
 public:
  using Destroy = cublasStatus_t (*)(Object);
  Owned(Object object, Destroy destroy) : object_(object), destroy_(destroy) {}
  ~Owned() { destroy_(object_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Object get() const { return object_; }

 private:
  Object object_;
  Destroy destroy_;
};
using Desc = Owned<cublasLtMatmulDesc_t>;
using Layout = Owned<cublasLtMatrixLayout_t>;
using Preference = Owned<cublasLtMatmulPreference_t>;

cudaDataType_t data_type(DType dtype) {
  return dtype == DType::BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

cublasLtMatmulDesc_t make_desc(const CublasApi& api) {
  cublasLtMatmulDesc_t desc = nullptr;
  // Full f32: TF32 has a compute type of its own.
  api.check(api.MatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  return desc;
}

cublasLtMatrixLayout_t make_layout(const CublasApi& api, const LtMatrix& x, int64_t batch) {
  cublasLtMatrixLayout_t layout = nullptr;
  api.check(api.MatrixLayoutCreate(&layout, data_type(x.dtype), static_cast<uint64_t>(x.rows),
                                   static_cast<uint64_t>(x.columns), x.ld),
            "cublasLtMatrixLayoutCreate");
  const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
    api.check(api.MatrixLayoutSetAttribute(layout, attribute, &value, sizeof(value)),
              "cublasLtMatrixLayoutSetAttribute");
  };
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch));
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, x.batch_stride);
  return layout;
}

cublasLtMatmulPreference_t make_preference(const CublasApi& api, const LtProblem& p, size_t workspace_bytes) {
  cublasLtMatmulPreference_t preference = nullptr;
  api.check(api.MatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    api.check(api.MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
              "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes));
  // Where k is split, parts are added in f32, not in the dtype of the result.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(p.a.alignment));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(p.b.alignment));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(p.c.alignment));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(p.c.alignment));
  return preference;
}

cublasLtEpilogue_t library_epilogue(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::Bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::BiasGelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::GeluBackward:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::None:
      break;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

struct CublasProducts::Plan {
  Plan(const CublasApi& api, const LtProblem& p)
      : desc(make_desc(api), api.MatmulDescDestroy),
        a(make_layout(api, p.a, p.batch), api.MatrixLayoutDestroy),
        b(make_layout(api, p.b, p.batch), api.MatrixLayoutDestroy),
        c(make_layout(api, p.c, p.batch), api.MatrixLayoutDestroy) {}
  Desc desc;
  Layout a, b, c;
  bool offered = false;
  cublasLtMatmulAlgo_t algorithm{};  // where offered
};

CublasProducts::CublasProducts(std::shared_ptr<const CublasApi> api, void* workspace, size_t workspace_bytes)
    : api_(std::move(api)), workspace_(workspace), workspace_bytes_(workspace_bytes) {
  api_->check(api_->Create(&handle_), "cublasLtCreate");
}

CublasProducts::~CublasProducts() {
  plans_.clear();
  api_->Destroy(handle_);
}

bool CublasProducts::multiply(const Gemm& g, cudaStream_t stream) {
  const LtProblem problem = lt_problem(g);
  const Plan& plan = this->plan(problem, g);
  if (!plan.offered) return false;
  set_pointers(plan, g);
  const float beta = g.accumulate ? 1.0f : 0.0f;
  api_->check(
      api_->Matmul(handle_, plan.desc.get(), &g.scale, g.b.data, plan.a.get(), g.a.data, plan.b.get(), &beta, g.c.data,
                   plan.c.get(), g.c.data, plan.c.get(), &plan.algorithm, workspace_, workspace_bytes_, stream),
      describe(problem));
  return true;
}

CublasProducts::Plan& CublasProducts::plan(const LtProblem& problem, const Gemm& g) {
  std::unique_ptr<Plan>& plan = plans_[problem];
  if (!plan) plan = make_plan(problem, g);
  return *plan;
}

std::unique_ptr<CublasProducts::Plan> CublasProducts::make_plan(const LtProblem& problem, const Gemm& g) const {
  auto plan = std::make_unique<Plan>(*api_, problem);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    api_->check(api_->MatmulDescSetAttribute(plan->desc.get(), attribute, &value, sizeof(value)),
                "cublasLtMatmulDescSetAttribute");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, problem.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, problem.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, library_epilogue(problem.epilogue));
  if (g.aux != nullptr) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, problem.c.ld);
  set_pointers(*plan, g);  // algorithms depend on their alignment
  const Preference preference(make_preference(*api_, problem, workspace_bytes_), api_->MatmulPreferenceDestroy);
  cublasLtMatmulHeuristicResult_t result{};
  int count = 0;
  const cublasStatus_t status =
      api_->MatmulAlgoGetHeuristic(handle_, plan->desc.get(), plan->a.get(), plan->b.get(), plan->c.get(),
                                   plan->c.get(), preference.get(), 1, &result, &count);
  plan->offered = status == CUBLAS_STATUS_SUCCESS && count > 0 && result.state == CUBLAS_STATUS_SUCCESS;
  plan->algorithm = result.algo;
  if (!plan->offered && problem.epilogue == Epilogue::None) {
    api_->check(status == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : status, describe(problem));
  }
  return plan;
}

void CublasProducts::set_pointers(const Plan& plan, const Gemm& g) const {
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* pointer) {
    if (pointer == nullptr) return;
    api_->check(api_->MatmulDescSetAttribute(plan.desc.get(), attribute, &pointer, sizeof(pointer)),
                "cublasLtMatmulDescSetAttribute of a pointer");
  };
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, g.aux);
}

}  // namespace sixfold::kernels::cuda
