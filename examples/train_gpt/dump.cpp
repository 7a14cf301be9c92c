#include "examples/train_gpt/dump.h"

#include "runtime/parallel/tp_gradients.h"

namespace sixfold::train_gpt {

Dump::Dump(const std::string& path, std::vector<parallel::Parameter*> parameters, parallel::Strategy& strategy,
           comm::Communicator* tp_group, const kernels::Place& place, bool writes)
    : parameters_(std::move(parameters)), strategy_(strategy), tp_group_(tp_group), place_(place) {
  if (!writes) return;
  std::vector<train::TensorInfo> tensors;
  for (const char* kind : {"grad.", "weight."}) {
    for (const parallel::Parameter* parameter : parameters_) {
      tensors.push_back({kind + parameter->name, DType::F32, parameter->file_shape()});
    }
  }
  writer_.emplace(path, tensors);
}

void Dump::gradients() {
  write("grad.", &parallel::Strategy::gather_gradient);
}

void Dump::weights() {
  write("weight.", &parallel::Strategy::gather_value);
  if (writer_) writer_->finish();
}

void Dump::write(const std::string& kind,
                 void (parallel::Strategy::*gather)(const parallel::Parameter&, const Tensor&)) {
  for (const parallel::Parameter* parameter : parameters_) {
    const Tensor piece = Tensor::empty(parameter->local_shape(), DType::F32, place_.memory, Category::Other);
    (strategy_.*gather)(*parameter, piece);
    const Tensor whole = parallel::assemble(*parameter, piece, tp_group_, place_);
    if (writer_) writer_->write(kind + parameter->name, whole);
  }
}

}  // namespace sixfold::train_gpt
