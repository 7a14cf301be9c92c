#include "runtime/parallel/tp_gradients.h"

#include "runtime/parallel/call_options.h"

namespace sixfold::parallel {

void sum_partial_gradients(const std::vector<UpdateSegment>& segments, comm::Communicator* tp_group,
                           const kernels::Place& place) {
  if (tp_group == nullptr || tp_group->size() == 1) return;
  int64_t count = 0;
  for (const UpdateSegment& segment : segments) count += segment.partial ? segment.grad.numel() : 0;
  if (count == 0) return;
  const Tensor packed = Tensor::empty({count}, DType::F32, place.memory, Category::Communication);
  kernels::Context context = kernels::context_of(place);
  const auto for_each_partial = [&](auto&& copy) {
    int64_t offset = 0;
    for (const UpdateSegment& segment : segments) {
      if (!segment.partial) continue;
      copy(segment.grad, packed.slice(offset, {segment.grad.numel()}));
      offset += segment.grad.numel();
    }
  };
  for_each_partial([&](const Tensor& grad, const Tensor& part) { kernels::copy(context, grad, part); });
  tp_group->all_reduce(packed, packed, ReduceOp::Sum, call_options(context, "tp.grads")).wait();
  for_each_partial([&](const Tensor& grad, const Tensor& part) { kernels::copy(context, part, grad); });
}

Tensor assemble(const Parameter& parameter, const Tensor& piece, comm::Communicator* tp_group,
                const kernels::Place& place) {
  const kernels::Context context = kernels::context_of(place);
  if (parameter.shard.count == 1) {
    return kernels::on_host(context, piece.slice(0, parameter.file_shape()));  // padding comes last
  }
  SIXFOLD_CHECK(tp_group != nullptr && tp_group->size() == parameter.shard.count, parameter.name + " is in pieces");
  const int64_t count = piece.numel();
  const Tensor pieces = Tensor::empty({tp_group->size(), count}, DType::F32, place.memory, Category::Other);
  tp_group->all_gather(piece, pieces, call_options(context, "tp.whole")).wait();
  const Tensor whole = Tensor::of_host(parameter.file_shape(), DType::F32);
  const Tensor pieces_on_host = kernels::on_host(context, pieces);
  const float* from = pieces_on_host.data<float>();
  for (int r = 0; r < tp_group->size(); ++r) {
    ShardSpec spec = parameter.shard;
    spec.index = r;
    for (int64_t i = 0; i < count; ++i, ++from) {
      const int64_t global = spec.global_index(parameter.full_shape, i);
      if (global < whole.numel()) whole.data<float>()[global] = *from;
    }
  }
  return whole;
}

}  // namespace sixfold::parallel
