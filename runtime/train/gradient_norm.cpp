#include "runtime/train/gradient_norm.h"

#include "runtime/parallel/call_options.h"

namespace sixfold::train {

void gradient_sum_of_squares(kernels::Context& context, const std::vector<parallel::UpdateSegment>& segments,
                             const NormGroups& groups, kernels::SquareSums how, const Tensor& sum) {
  const bool counts_replicated = groups.tp == nullptr || groups.tp->rank() == 0;
  std::vector<Tensor> grads;
  for (const parallel::UpdateSegment& segment : segments) {
    if (segment.in_norm && (counts_replicated || !segment.replicated)) grads.push_back(segment.grad);
  }
  kernels::add_squares(context, grads, how, sum);
  const auto over_ranks = [&](comm::Communicator* group, const char* tag) {
    if (group != nullptr) group->all_reduce(sum, sum, ReduceOp::Sum, parallel::call_options(context, tag)).wait();
  };
  over_ranks(groups.shards, "dp.norm");
  over_ranks(groups.tp, "tp.norm");
  over_ranks(groups.pp, "pp.norm");
}

}  // namespace sixfold::train
