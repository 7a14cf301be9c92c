#include "runtime/parallel/ulysses.h"

#include "runtime/parallel/tp_layers.h"

namespace sixfold::parallel {

UlyssesAttention::UlyssesAttention(int64_t num_heads, comm::Communicator* group)
    : num_heads_(num_heads), group_(group) {
  SIXFOLD_CHECK_EQ(num_heads % (group == nullptr ? 1 : group->size()), 0, "heads over the ranks of a sequence");
}

Region UlyssesAttention::region(kernels::Context& context, const MicroBatch& batch, const char* tag) const {
  return {context, batch.all_positions ? nullptr : group_, batch.training ? tag : std::string(tag) + ".eval",
          batch.num_rows()};
}

Tensor UlyssesAttention::forward(kernels::Context& context, const Tensor& qkv, const MicroBatch& batch,
                                 Kept& kept) const {
  const Region region_in = region(context, batch, "sp.qkv");
  const int64_t heads = num_heads_ / region_in.size(), seq_len = batch.seq_len * region_in.size();
  kept.qkv = ToChannels::forward(region_in, qkv, 3).wait();
  kept.out = activation(context, {kept.qkv.dim(0), kept.qkv.dim(1) / 3});
  kept.lse = f32_activation(context, {batch.num_rows(), heads, seq_len});
  kernels::attention_forward(context, kept.qkv, seq_len, heads, kept.out, kept.lse);
  return ToPositions::forward(region(context, batch, "sp.out"), kept.out, 1).wait();
}

Tensor UlyssesAttention::backward(kernels::Context& context, const Tensor& dout, const MicroBatch& batch,
                                  Kept& kept) const {
  const Region region_out = region(context, batch, "sp.out.grad");
  const int64_t heads = num_heads_ / region_out.size(), seq_len = batch.seq_len * region_out.size();
  const Tensor dout_of_heads = ToPositions::backward(region_out, dout, 1).wait();
  const Tensor dqkv = activation(context, kept.qkv.shape());
  kernels::attention_backward(context, dout_of_heads, kept.qkv, kept.out, kept.lse, seq_len, heads, dqkv);
  kept = {};
  return ToChannels::backward(region(context, batch, "sp.qkv.grad"), dqkv, 3).wait();
}

}  // namespace sixfold::parallel
