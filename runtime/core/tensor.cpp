#include "runtime/core/tensor.h"

#include <cstring>
#include <new>

namespace sixfold {

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

int64_t numel(const Shape& shape) {
  int64_t product = 1;
  for (int64_t dim : shape) {
    SIXFOLD_CHECK_LE(0, dim, "negative dim in shape " + to_string(shape));
    product *= dim;
  }
  return product;
}

Tensor Tensor::empty(Shape shape, DType dtype, Memory& memory, Category category) {
  Tensor tensor = view(nullptr, std::move(shape), dtype, memory.device());
  tensor.owner_ = memory.allocate(tensor.bytes(), category);
  tensor.data_ = tensor.owner_.get();
  return tensor;
}

Tensor Tensor::zeros(Shape shape, DType dtype, Memory& memory, Category category) {
  Tensor tensor = empty(std::move(shape), dtype, memory, category);
  tensor.zero();
  return tensor;
}

Tensor Tensor::of_host(Shape shape, DType dtype) {
  Tensor tensor = view(nullptr, std::move(shape), dtype);
  if (tensor.bytes() == 0) return tensor;
  tensor.owner_ = std::shared_ptr<void>(::operator new (tensor.bytes(), std::align_val_t{kAlignment}),
                                        [](void* p) { ::operator delete (p, std::align_val_t{kAlignment}); });
  tensor.data_ = tensor.owner_.get();
  return tensor;
}

Tensor Tensor::view(void* data, Shape shape, DType dtype, Device device) {
  Tensor tensor;
  tensor.data_ = data;
  tensor.numel_ = sixfold::numel(shape);
  tensor.shape_ = std::move(shape);
  tensor.dtype_ = dtype;
  tensor.device_ = device;
  return tensor;
}

Tensor Tensor::slice(int64_t offset, Shape shape) const {
  return slice_checked(offset, std::move(shape), false);
}

Tensor Tensor::slice_checked(int64_t offset, Shape shape, bool whole) const {
  const int64_t count = sixfold::numel(shape);
  SIXFOLD_CHECK_LE(0, offset, "slice of tensor " + to_string(shape_));
  SIXFOLD_CHECK_LE(offset + count, numel_, "slice of tensor " + to_string(shape_));
  if (whole) SIXFOLD_CHECK_EQ(count, numel_, "reshape of " + to_string(shape_) + " to " + to_string(shape));
  Tensor result = *this;
  if (data_ != nullptr) result.data_ = static_cast<char*>(data_) + static_cast<size_t>(offset) * dtype_bytes(dtype_);
  result.shape_ = std::move(shape);
  result.numel_ = count;
  return result;
}

void Tensor::check_on_cpu() const {
  SIXFOLD_CHECK(device_.type == DeviceType::Cpu, "code on the CPU looks at a tensor on a GPU");
}

void Tensor::zero() const {
  check_on_cpu();
  if (bytes() > 0) std::memset(data_, 0, bytes());
}

void Tensor::copy_from(const Tensor& source) const {
  check_on_cpu();
  source.check_on_cpu();
  SIXFOLD_CHECK_EQ(numel_, source.numel_, "copy between tensors of different size");
  SIXFOLD_CHECK(dtype_ == source.dtype_, "copy between tensors of different dtype");
  if (bytes() > 0) std::memmove(data_, source.data_, bytes());
}

}  // namespace sixfold
