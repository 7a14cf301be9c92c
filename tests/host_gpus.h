// A GpuProvider without a GPU.
#pragma once

#include <functional>

#include "runtime/comm/cuda/gpu_provider.h"
#include "tests/collective_cases.h"
#include "tests/host_clock.h"
#include "tests/host_grid.h"
#include "tests/host_staging.h"

namespace sixfold::test {

/// By default, all ranks are on one GPU.
class HostGpus final : public comm::GpuProvider {
 public:
  explicit HostGpus(std::shared_ptr<HostGrid> grid = std::make_shared<HostGrid>()) : grid_(std::move(grid)) {}

  comm::GpuPlace place(int local_rank) override { return place_of(local_rank); }
  std::unique_ptr<comm::StreamClock> clock() override { return std::make_unique<HostClock>(streams_have_come); }
  comm::GridDevice& grid(int) override { return *grid_; }
  comm::PeerDevice& peer(int) override { throw CheckError("ranks that do not reach one another"); }
  std::unique_ptr<comm::StagingDevice> staging(int local_rank) override {
    return std::make_unique<HostStaging>(counts, shape, static_cast<unsigned>(100 * local_rank + ++num_staging_));
  }

  std::function<comm::GpuPlace(int local_rank)> place_of = [](int) { return comm::GpuPlace{}; };
  comm::StagingShape shape{.piece_bytes = 1024};
  StagingCounts counts;
  std::atomic<bool> streams_have_come = true;

 private:
  std::shared_ptr<HostGrid> grid_;
  std::atomic<int> num_staging_ = 0;
};

/// As run_case(), with buffers that only a HostStaging reaches. `memory`: the World's.
inline std::string run_case_on_device(comm::Communicator& group, Memory& memory, const CollectiveCase& c) {
  return dispatch(c.dtype, [&](auto element) {
    CaseBuffers<decltype(element)> buffers(memory, c, group.rank(), group.size());
    issue(group, c, comm::ConstBuf(on_device(buffers.in), buffers.in_count, c.dtype),
          comm::Buf(on_device(buffers.out), buffers.out_count, c.dtype))
        .wait();
    return buffers.check(c, group.rank(), group.size());
  });
}

}  // namespace sixfold::test
