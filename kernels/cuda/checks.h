// Preconditions of kernels on a GPU, checked before the launch.
#pragma once

#include <initializer_list>
#include <string>

#include "runtime/core/tensor.h"

namespace sixfold::kernels::cuda {

/// The elements of `tensor`, after checking that it lives on a GPU and has this dtype and shape.
template <typename T>
T* checked(const Tensor& tensor, std::initializer_list<int64_t> shape, const char* name) {
  SIXFOLD_CHECK(tensor.device().type == DeviceType::Cuda, std::string(name) + " must be on the GPU");
  SIXFOLD_CHECK(tensor.shape() == Shape(shape),
                std::string(name) + " is " + to_string(tensor.shape()) + ", expected " + to_string(Shape(shape)));
  return tensor.device_data<T>();
}

/// As checked(), for operations on any shape: only the number of elements counts.
template <typename T>
T* checked_elements(const Tensor& tensor, int64_t num_elements, const char* name) {
  SIXFOLD_CHECK(tensor.device().type == DeviceType::Cuda, std::string(name) + " must be on the GPU");
  SIXFOLD_CHECK_EQ(tensor.numel(), num_elements, std::string(name) + " has another number of elements");
  return tensor.device_data<T>();
}

/// Dim i of a tensor that must have `rank` dims.
inline int64_t checked_dim(const Tensor& tensor, size_t rank, size_t i, const char* name) {
  SIXFOLD_CHECK_EQ(tensor.rank(), rank, std::string(name) + " has another number of dims");
  return tensor.dim(i);
}

/// f(T{}) for the type of activations and parameters: float or BF16. Throws CheckError for others.
template <typename F>
void dispatch_float(DType dtype, F&& f) {
  SIXFOLD_CHECK(dtype == DType::F32 || dtype == DType::BF16, "dtype of a tensor on the GPU");
  if (dtype == DType::F32) {
    f(float{});
  } else {
    f(BF16{});
  }
}

}  // namespace sixfold::kernels::cuda
