#include "examples/train_gpt/dump.h"

namespace sixfold::train_gpt {

Dump::Dump(const std::string& path, std::vector<parallel::Parameter*> parameters, parallel::Strategy& strategy,
           Memory& memory, bool writes)
    : parameters_(std::move(parameters)), strategy_(strategy), memory_(memory) {
  if (!writes) return;
  std::vector<train::TensorInfo> tensors;
  for (const char* kind : {"grad.", "weight."}) {
    for (const parallel::Parameter* parameter : parameters_) {
      tensors.push_back({kind + parameter->name, DType::F32, parameter->local_shape()});
    }
  }
  writer_.emplace(path, tensors);
}

void Dump::gradients() {
  for (const parallel::Parameter* parameter : parameters_) {
    const Tensor whole = Tensor::empty(parameter->local_shape(), DType::F32, memory_, Category::Other);
    strategy_.gather_gradient(*parameter, whole);
    if (writer_) writer_->write("grad." + parameter->name, whole);
  }
}

void Dump::weights() {
  for (const parallel::Parameter* parameter : parameters_) {
    const Tensor whole = Tensor::empty(parameter->local_shape(), DType::F32, memory_, Category::Other);
    strategy_.gather_value(*parameter, whole);
    if (writer_) writer_->write("weight." + parameter->name, whole);
  }
  if (writer_) writer_->finish();
}

}  // namespace sixfold::train_gpt
