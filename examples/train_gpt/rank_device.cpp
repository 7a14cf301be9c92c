#include "examples/train_gpt/rank_device.h"

#include "runtime/core/device.h"

namespace sixfold::train_gpt {

RankDevice::RankDevice(comm::World& world, comm::Communicator& group, const Plan& plan)
    : world_(world), allocator_(std::make_shared<HostAllocator>()) {
  if (plan.device.type == DeviceType::Cpu) return;
  group.barrier();  // all have what communication takes
  const size_t free_bytes = free_device_bytes();
  group.barrier();  // nobody has taken anything yet
  // The rest is for libraries, whose kernels and handles take memory when they are first used.
  constexpr double kShare = 0.85;
  const int num_sharing = world.gpu_use() == nullptr ? 1 : world.gpu_use()->num_sharing;
  allocator_ = make_device_allocator(static_cast<size_t>(kShare * static_cast<double>(free_bytes)) /
                                     static_cast<size_t>(num_sharing));
  memory_ = std::make_unique<Memory>(allocator_);
  queue_ = kernels::make_cuda_queue(memory_->device());
}

}  // namespace sixfold::train_gpt
