// A GpuProvider without a GPU.
#pragma once

#include <functional>

#include "runtime/comm/cuda/gpu_provider.h"
#include "tests/host_grid.h"
#include "tests/host_staging.h"

namespace sixfold::test {

/// By default, all ranks are on one GPU.
class HostGpus final : public comm::GpuProvider {
 public:
  explicit HostGpus(std::shared_ptr<HostGrid> grid = std::make_shared<HostGrid>()) : grid_(std::move(grid)) {}

  comm::GpuPlace place(int local_rank) override { return place_of(local_rank); }
  comm::GridDevice& grid(int) override { return *grid_; }
  std::unique_ptr<comm::StagingDevice> staging(int local_rank) override {
    return std::make_unique<HostStaging>(counts, shape, static_cast<unsigned>(100 * local_rank + ++num_staging_));
  }

  std::function<comm::GpuPlace(int local_rank)> place_of = [](int) { return comm::GpuPlace{}; };
  comm::StagingShape shape{.piece_bytes = 1024};
  StagingCounts counts;

 private:
  std::shared_ptr<HostGrid> grid_;
  std::atomic<int> num_staging_ = 0;
};

}  // namespace sixfold::test
