// A GpuProvider without a GPU.
#pragma once

#include "runtime/comm/cuda/gpu_provider.h"
#include "tests/host_grid.h"

namespace sixfold::test {

class HostGpus final : public comm::GpuProvider {
 public:
  explicit HostGpus(std::shared_ptr<HostGrid> grid) : grid_(std::move(grid)) {}

  comm::GpuPlace place(int) override { return {}; }
  comm::GridDevice& grid(int) override { return *grid_; }
  std::unique_ptr<comm::StagingDevice> staging(int) override { throw CheckError("not a staged World"); }

 private:
  std::shared_ptr<HostGrid> grid_;
};

}  // namespace sixfold::test
