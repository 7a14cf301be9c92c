#include "kernels/cuda/checks.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/launch.h"
#include "kernels/gelu.h"

namespace sixfold::kernels::cuda {

namespace {

/// What an epilogue makes of a product that c holds, one row of it.
template <typename T, int pack, Epilogue epilogue>
struct ApplyEpilogue {
  T* c;
  const T* bias;
  T* aux;
  int64_t n, stride;
  template <typename Lanes>
  SIXFOLD_DEVICE void operator()(const Lanes& lanes, int64_t row) const {
    for_channels<pack>(lanes, n, [&](int64_t i) {
      const int64_t at = row * stride + i;
      float values[pack], operand[pack];
      if constexpr (epilogue == Epilogue::GeluBackward) {
        load(aux + at, operand);
        SIXFOLD_UNROLL
        for (int k = 0; k < pack; ++k) operand[k] = gelu_derivative(operand[k]);
        load(c + at, values);
        SIXFOLD_UNROLL
        for (int k = 0; k < pack; ++k) values[k] *= operand[k];
      } else {
        load(bias + i, operand);
        load(c + at, values);
        SIXFOLD_UNROLL
        for (int k = 0; k < pack; ++k) values[k] += operand[k];
      }
      if constexpr (epilogue == Epilogue::BiasGelu) {
        store(aux + at, values);
        SIXFOLD_UNROLL
        for (int k = 0; k < pack; ++k) values[k] = gelu(values[k]);
      }
      store(c + at, values);
    });
  }
};

template <Epilogue epilogue>
void apply_epilogue(Context& context, const Gemm& g) {
  dispatch_float(g.c.dtype, [&](auto element) {
    using T = decltype(element);
    const auto launch = [&]<int pack>() {
      const ApplyEpilogue<T, pack, epilogue> f{static_cast<T*>(g.c.data), static_cast<const T*>(g.bias),
                                               static_cast<T*>(g.aux), g.n, g.c.stride};
      for_each_row<RowBy::Block>(context, g.m, f);
    };
    if (g.c.stride % kPack == 0 && takes_packs(g.n, {g.c.data, g.bias, g.aux})) {
      launch.template operator()<kPack>();
    } else {
      launch.template operator()<1>();
    }
  });
}

}  // namespace

void gemm(Context& context, const Gemm& g) {
  SIXFOLD_CHECK(g.epilogue == Epilogue::None || (g.batch == 1 && !g.accumulate),
                "epilogues are of single products that are not accumulated");
  SIXFOLD_CHECK(g.a.dtype == g.b.dtype && (g.c.dtype == g.a.dtype || g.c.dtype == DType::F32), "dtypes of a product");
  if (g.m == 0 || g.n == 0 || g.batch == 0 || (g.k == 0 && g.accumulate)) return;
  SIXFOLD_CHECK_LT(0, g.k, "a product with nothing to add");
  if (multiply(context, g)) return;
  Gemm product = g;
  product.epilogue = Epilogue::None;
  product.bias = product.aux = nullptr;
  multiply(context, product);
  if (g.epilogue == Epilogue::Bias) apply_epilogue<Epilogue::Bias>(context, g);
  if (g.epilogue == Epilogue::BiasGelu) apply_epilogue<Epilogue::BiasGelu>(context, g);
  if (g.epilogue == Epilogue::GeluBackward) apply_epilogue<Epilogue::GeluBackward>(context, g);
}

}  // namespace sixfold::kernels::cuda
