#include "runtime/train/host_sum.h"

#include "runtime/parallel/call_options.h"

namespace sixfold::train {

void HostSum::start(const kernels::Place& place, comm::Communicator& group, std::span<int64_t> values,
                    const std::string& tag) {
  const kernels::Context context = kernels::context_of(place);
  const Tensor host = Tensor::view(values.data(), {static_cast<int64_t>(values.size())}, DType::I64);
  queue_ = place.queue;
  values_ = values;
  if (queue_ != nullptr) {
    on_gpu_ = Tensor::empty(host.shape(), DType::I64, place.memory, Category::Communication);
    kernels::from_host(place, host, on_gpu_);
  }
  const Tensor& travels = queue_ == nullptr ? host : on_gpu_;
  work_ = group.all_reduce(travels, travels, ReduceOp::Sum, parallel::call_options(context, tag));
}

void HostSum::wait() {
  work_.wait();
  if (!on_gpu_.defined()) return;
  queue_->to_host(values_.data(), on_gpu_.raw(), on_gpu_.bytes());
  on_gpu_ = {};
}

}  // namespace sixfold::train
