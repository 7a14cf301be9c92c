// What tests of staged groups share: Worlds whose GPU is taken by threads that copy late (host_staging.h), with pieces
// so small that few elements make many.
#pragma once

#include "tests/harness.h"
#include "tests/host_gpus.h"

namespace sixfold::test {

inline comm::WorldOptions staged(std::shared_ptr<HostGpus> gpus = std::make_shared<HostGpus>()) {
  comm::WorldOptions options;
  options.gpus = std::move(gpus);
  options.gpu_mode = comm::GpuMode::Staged;
  options.timeout_s = 20;
  return options;
}

inline comm::Buf buf(std::vector<int32_t>& x) {
  return comm::Buf(on_device(x.data()), x.size(), DType::I32);
}

inline std::string run_staged(comm::World& world, const CollectiveCase& c) {
  return run_case_on_device(world.group(), world.memory(), c);
}

}  // namespace sixfold::test
