// GpuProvider on the GPUs that CUDA shows this process.
#include <cstdlib>
#include <map>
#include <mutex>

#include "runtime/comm/cuda/gpu_provider.h"
#include "runtime/core/cuda/cuda_error.h"
#include "runtime/core/device.h"

namespace sixfold::comm {

namespace {

using cuda::check_cuda;

GpuId id_of(int device) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  GpuId id;
  static_assert(sizeof(properties.uuid.bytes) == sizeof(id.bytes));
  for (size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<uint8_t>(properties.uuid.bytes[i]);
  return id;
}

class CudaProvider final : public GpuProvider {
 public:
  CudaProvider(int num_devices, double timeout_s) : num_devices_(num_devices), timeout_s_(timeout_s) {}

  GpuPlace place(int local_rank) override {
    const int own = device_of(local_rank);
    check_cuda(cudaSetDevice(own), "cudaSetDevice " + std::to_string(own));
    GpuPlace place;
    place.gpu = id_of(own);
    for (int other = 0; other < num_devices_; ++other) {
      int reaches = 0;
      if (other != own) check_cuda(cudaDeviceCanAccessPeer(&reaches, own, other), "cudaDeviceCanAccessPeer");
      if (reaches != 0) place.peers.push_back(id_of(other));
    }
    return place;
  }
  std::unique_ptr<StreamClock> clock() override { return make_cuda_clock(); }
  GridDevice& grid(int local_rank) override {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<GridDevice>& grid = grids_[device_of(local_rank)];
    if (!grid) grid = make_cuda_grid(device_of(local_rank), timeout_s_);
    return *grid;
  }
  PeerDevice& peer(int local_rank) override {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<PeerDevice>& peer = peers_[local_rank];
    if (!peer) peer = make_cuda_peer(device_of(local_rank), timeout_s_);
    return *peer;
  }
  std::unique_ptr<StagingDevice> staging(int local_rank) override { return make_cuda_staging(device_of(local_rank)); }

 private:
  int device_of(int local_rank) const { return local_rank % num_devices_; }

  int num_devices_;
  double timeout_s_;
  std::mutex mutex_;
  std::map<int, std::unique_ptr<GridDevice>> grids_;  // by device
  std::map<int, std::unique_ptr<PeerDevice>> peers_;  // by local rank
};

}  // namespace

std::shared_ptr<GpuProvider> make_cuda_provider(double timeout_s) {
  // Streams that share one of the hardware's queues wait for one another, which kernels that wait for other ranks must
  // not. Read when a GPU is first used; whoever has set it knows better.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  // Loading a kernel when it is first launched waits for the device, on which a kernel may wait for this very rank.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  const CudaProbe probe = probe_cuda();
  if (probe.num_devices == 0) throw ConfigError("--device cuda: " + probe.problem + " (allowed here: auto, cpu)");
  return std::make_shared<CudaProvider>(probe.num_devices, timeout_s);
}

}  // namespace sixfold::comm
