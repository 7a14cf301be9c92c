#include "runtime/core/device.h"

#include "runtime/core/log.h"

namespace sixfold {

DeviceChoice parse_device_choice(std::string_view name) {
  if (name == "auto") return DeviceChoice::Auto;
  if (name == "cpu") return DeviceChoice::Cpu;
  if (name == "cuda") return DeviceChoice::Cuda;
  throw ConfigError("--device " + std::string(name) + ": allowed are auto, cpu, cuda");
}

#ifndef SIXFOLD_HAS_CUDA
CudaProbe probe_cuda() {
  return {0, "this build has no CUDA"};
}

namespace {
[[noreturn]] void refuse() {
  throw ConfigError("--device cuda: this build has no CUDA (allowed here: auto, cpu)");
}
}  // namespace

std::shared_ptr<Allocator> make_device_allocator(size_t) {
  refuse();
}
size_t free_device_bytes() {
  refuse();
}
void copy_to_device(void*, const void*, size_t) {
  refuse();
}
void copy_to_host(void*, const void*, size_t) {
  refuse();
}
DeviceSpeed measure_device() {
  refuse();
}
#endif

Device choose_device(DeviceChoice choice, const CudaProbe& probe) {
  if (choice == DeviceChoice::Cpu) return {DeviceType::Cpu, 0};
  if (probe.num_devices > 0) return {DeviceType::Cuda, 0};
  if (choice == DeviceChoice::Cuda) throw ConfigError("--device cuda: " + probe.problem + " (allowed here: auto, cpu)");
  log_info("no GPU to use (" + probe.problem + "): computing on the CPU");
  return {DeviceType::Cpu, 0};
}

}  // namespace sixfold
