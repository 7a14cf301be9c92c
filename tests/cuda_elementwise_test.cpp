// The GPU's element-wise kernels, compiled for the CPU, against the CPU's own.
#include "tests/emulated_gpu.h"
#include "tests/kernels_harness.h"

namespace sixfold::test {
namespace {

TEST(CudaElementwise, GeluIsThatOfTheCpu) {
  for (const int64_t count : {1, 3, 64, 129}) {
    const Floats x = random_floats(count, 1, 3.0);
    Floats expected(x.size());
    Memory memory;
    kernels::Context on_cpu{memory};
    kernels::gelu_forward(on_cpu, Tensor::view(const_cast<float*>(x.data()), {count}, DType::F32),
                          Tensor::view(expected.data(), {count}, DType::F32));
    EmulatedGpu gpu;
    kernels::Context context = gpu.context();
    const Tensor in = Tensor::empty({count}, DType::F32, gpu.memory, Category::Other);
    const Tensor out = Tensor::empty({count}, DType::F32, gpu.memory, Category::Other);
    kernels::from_host(context, Tensor::view(const_cast<float*>(x.data()), {count}, DType::F32), in);
    kernels::gelu_forward(context, in, out);
    const Tensor actual = kernels::on_host(context, out);
    expect_close({actual.data<float>(), actual.data<float>() + count}, to_doubles(expected), 1e-6, "gelu");
    EXPECT_THROW(out.data<float>(), CheckError);  // the CPU does not look at what is on a GPU
  }
}

}  // namespace
}  // namespace sixfold::test
