// Tensor: shape, dtype, device, and storage that it owns or views. Contiguous, row-major, no arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/core/dtype.h"
#include "runtime/core/memory.h"

namespace sixfold {

using Shape = std::vector<int64_t>;
std::string to_string(const Shape& shape);

/// A handle: copies share the storage, and the last one frees it. `const` protects the handle, not the elements.
class Tensor {
 public:
  Tensor() = default;

  /// Owns storage taken from `memory`, on its device, 64-byte aligned, content unspecified. Dims must be >= 0.
  static Tensor empty(Shape shape, DType dtype, Memory& memory, Category category);
  /// As empty(), all bytes zero. On the CPU; for either device there is kernels::zeros.
  static Tensor zeros(Shape shape, DType dtype, Memory& memory, Category category);
  /// Owns memory of the CPU that no Memory counts: for small things that a rank looks at. Content unspecified.
  static Tensor of_host(Shape shape, DType dtype);
  /// Views caller-owned elements; the caller keeps them alive. `data` may be null when the shape has no elements.
  static Tensor view(void* data, Shape shape, DType dtype, Device device = {});

  /// A view of numel(shape) elements from element `offset` on, sharing ownership. Throws CheckError beyond the end.
  Tensor slice(int64_t offset, Shape shape) const;
  /// The same elements under another shape of as many elements.
  Tensor reshape(Shape shape) const { return slice_checked(0, std::move(shape), true); }

  const Shape& shape() const { return shape_; }
  int64_t dim(size_t i) const { return shape_.at(i); }
  size_t rank() const { return shape_.size(); }
  int64_t numel() const { return numel_; }
  size_t bytes() const { return static_cast<size_t>(numel_) * dtype_bytes(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  bool defined() const { return data_ != nullptr || !shape_.empty(); }

  void* raw() const { return data_; }
  /// Typed access by code that runs on the CPU; T must match the dtype, and the tensor be there.
  template <typename T>
  T* data() const {
    check_on_cpu();
    return device_data<T>();
  }
  /// The same for kernels of the tensor's device, which may be a GPU.
  template <typename T>
  T* device_data() const {
    SIXFOLD_CHECK(DTypeOf<T>::value == dtype_,
                  "tensor accessed as another type than " + std::string(dtype_name(dtype_)));
    return static_cast<T*>(data_);
  }
  /// On the CPU, as copy_from(); for either device there are kernels::zero and kernels::copy.
  void zero() const;
  /// Copies all elements; shapes may differ, numel and dtype must not.
  void copy_from(const Tensor& source) const;

 private:
  Tensor slice_checked(int64_t offset, Shape shape, bool whole) const;
  void check_on_cpu() const;

  std::shared_ptr<void> owner_;
  void* data_ = nullptr;
  Shape shape_;
  int64_t numel_ = 0;
  DType dtype_ = DType::F32;
  Device device_;
};

/// Number of elements of a shape (1 for the empty shape). Throws CheckError on a negative dim.
int64_t numel(const Shape& shape);

}  // namespace sixfold
