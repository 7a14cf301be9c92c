// Which device a program computes on: `--device auto|cpu|cuda`.
#pragma once

#include <string>
#include <string_view>

#include "runtime/core/tensor.h"

namespace sixfold {

enum class DeviceChoice : uint8_t { Auto, Cpu, Cuda };
/// Throws ConfigError with the allowed names.
DeviceChoice parse_device_choice(std::string_view name);

/// What there is to choose from.
struct CudaProbe {
  int num_devices = 0;
  std::string problem;  // why there are none: no GPU, a driver that is too old, a build without CUDA
};
/// Looks at this machine, as seen by this build. Never throws.
CudaProbe probe_cuda();

/// Auto takes the first GPU where there is one, else the CPU, and logs one line that says why. Throws ConfigError where
/// Cuda is asked for and there is none.
Device choose_device(DeviceChoice choice, const CudaProbe& probe);

// Memory of the first GPU, for programs; all throw ConfigError in a build without CUDA, and CommError where CUDA fails.

/// Hands out `bytes` bytes of it, taken at once.
std::shared_ptr<Allocator> make_device_allocator(size_t bytes);
/// Of the memory of the calling thread's GPU.
size_t free_device_bytes();
/// Return when the bytes are there.
void copy_to_device(void* device, const void* host, size_t bytes);
void copy_to_host(void* host, const void* device, size_t bytes);
struct DeviceSpeed {
  std::string name;
  double copy_bytes_per_s = 0;  // read + written, of a copy of 256 MiB inside its memory; median of 5
};
DeviceSpeed measure_device();

}  // namespace sixfold
