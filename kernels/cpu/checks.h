// Preconditions of kernels, checked once at entry (never inside a parallel loop, where nothing may throw).
#pragma once

#include <initializer_list>
#include <string>

#include "runtime/core/tensor.h"

namespace sixfold::kernels {

/// The elements of `tensor`, after checking that it lives on the CPU and has this dtype and shape.
template <typename T>
T* checked(const Tensor& tensor, std::initializer_list<int64_t> shape, const char* name) {
  SIXFOLD_CHECK(tensor.device().type == DeviceType::Cpu, std::string(name) + " must be on the CPU");
  SIXFOLD_CHECK(tensor.shape() == Shape(shape),
                std::string(name) + " is " + to_string(tensor.shape()) + ", expected " + to_string(Shape(shape)));
  return tensor.data<T>();
}

/// As checked(), for operations on any shape: only the number of elements counts.
inline float* checked_elements(const Tensor& tensor, int64_t num_elements, const char* name) {
  SIXFOLD_CHECK(tensor.device().type == DeviceType::Cpu, std::string(name) + " must be on the CPU");
  SIXFOLD_CHECK_EQ(tensor.numel(), num_elements, std::string(name) + " has another number of elements");
  return tensor.data<float>();
}

/// Dim i of a tensor that must have `rank` dims.
inline int64_t checked_dim(const Tensor& tensor, size_t rank, size_t i, const char* name) {
  SIXFOLD_CHECK_EQ(tensor.rank(), rank, std::string(name) + " has another number of dims");
  return tensor.dim(i);
}

}  // namespace sixfold::kernels
