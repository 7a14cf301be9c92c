// ZeRO stage 1: every rank has all parameters and gradients, and the optimizer state of its shard piece of each bucket.
//
//   start      Broadcast of each bucket of parameters from rank 0                        "dp.params"
//   backward   of the last micro-batch (deterministic: of each): the pieces of a         "zero1.grads"
//              bucket are Reduced to their owners as soon as the bucket is complete
//   after      each owner Broadcasts its piece of the new parameters; a unit waits for   "zero1.params"
//              its own before its next forward
//
// Bytes sent per rank and step: (N-1)/N G + (N-1)/N P, padded, by ring or direct: each rank is the root of one of N
// pieces and sends the N-1 others once; of N chains it is the last of one.
//
// Source: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", SC 2020, P_os.
#pragma once

#include "runtime/parallel/bucketed_strategy.h"
#include "runtime/parallel/whole_values.h"

namespace sixfold::parallel {

class Zero1 final : public BucketedStrategy {
 public:
  /// As Ddp.
  Zero1(const UnitList& units, const kernels::Place& place, comm::Communicator& group, const StrategyOptions& options);

  void load_values(const std::function<void(Parameter&)>& fill) override { values_.load(group_, fill); }
  void before_forward(Unit& unit, int) override { values_.wait_for(unit); }
  void after_forward(Unit&, int) override {}
  void after_step() override;
  void settle() override { values_.wait(); }
  void gather_value(const Parameter& parameter, const Tensor& out) override;
  void gather_gradient(const Parameter& parameter, const Tensor& out) override;

 private:
  void clear_gradients() override;
  bool reduces(int micro_batch) const override { return options_.deterministic || is_last(micro_batch); }
  void start_reduction(size_t bucket) override;
  void end_backward() override;
  void finish() override;
  Tensor own_piece(const Tensor& flat) const;

  struct Reduction {
    size_t bucket;
    Tensor wire;
    std::vector<comm::Work> works;  // by piece
  };

  comm::Communicator& group_;
  WholeValues values_;
  std::vector<Tensor> grads_;  // by bucket, f32 [padded_count]; after finish(): the sum in this rank's piece
  std::vector<Tensor> sums_;   // by bucket, f32 [piece_count]: earlier micro-batches, reduced; deterministic only
  std::vector<Reduction> under_way_;
};

}  // namespace sixfold::parallel
