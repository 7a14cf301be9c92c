// PeerDevice on a GPU.
//
// All memory is one cudaMalloc, which other processes open by CUDA's inter-process handle; the streams, the pinned
// memory for uploads and the kernels are there before the first operation. Launches are ordinary ones: their blocks are
// few, and counted over all queues, so that all that may wait for one another are resident at once.
#include <algorithm>
#include <cstring>
#include <limits>
#include <list>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "runtime/comm/cuda/device/kernel_set.h"
#include "runtime/comm/cuda/peer_device.h"
#include "runtime/comm/host/progress.h"
#include "runtime/core/cuda/cuda_error.h"
#include "runtime/core/cuda/device_memory.h"
#include "runtime/core/cuda/event_pool.h"

namespace sixfold::comm {

namespace {

using cuda::check_cuda;

constexpr size_t kArenaBytes = size_t{1} << 30;
constexpr size_t kCleanBytes = size_t{256} << 20;  // of them
constexpr size_t kPinnedBytes = size_t{32} << 20;  // for tables on their way
constexpr size_t kPinnedAlignment = 64;
constexpr int kNumStreams = 32;     // as many as the hardware runs side by side
constexpr int kMaxWordBlocks = 16;  // of an all-reduce of low latency
constexpr int kMaxSliceBlocks = 16;
constexpr size_t kSliceBlockBytes = 32 * 1024;  // of a slice, for one block
constexpr size_t kStuckOffset = 128;            // in control memory, after the abort word

/// The calling thread may be the rank's progress thread, for which no GPU is current.
int made_current(int device) {
  check_cuda(cudaSetDevice(device), "cudaSetDevice " + std::to_string(device));
  return device;
}

/// Tells this process from all others of the host, in whatever namespaces they are.
uint64_t process_token() {
  static const uint64_t token = [] {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
  }();
  return token;
}

/// What an ArenaHandle holds.
struct Handle {
  uint64_t process;
  std::byte* base;
  int device;  // of that process
  cudaIpcMemHandle_t ipc;
};
static_assert(sizeof(Handle) <= sizeof(ArenaHandle));

class EventMark final : public StreamMark {
 public:
  EventMark(std::shared_ptr<cuda::EventPool> pool, cudaStream_t stream) : event_(std::move(pool), stream) {}
  const cuda::Event& event() const { return event_.event(); }

 private:
  cuda::PooledEvent event_;
};

class QueueMark final : public DeviceMark {
 public:
  QueueMark(std::shared_ptr<cuda::EventPool> pool, cudaStream_t stream, const StuckRecord* stuck)
      : event_(std::move(pool), stream), stuck_(stuck) {}
  bool done() override {
    if (reinterpret_cast<const volatile uint32_t&>(stuck_->set) != 0) throw CommError(to_string(*stuck_));
    return event_.event().done();
  }
  void order_before(void* stream) override {
    check_cuda(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event_.event().get(), 0), "cudaStreamWaitEvent");
  }

 private:
  cuda::PooledEvent event_;
  const StuckRecord* stuck_;
};

class CudaPeer final : public PeerDevice {
 public:
  CudaPeer(int device, double timeout_s);
  ~CudaPeer() override;

  PeerArena& arena() override { return arena_; }
  ArenaHandle arena_handle() const override { return handle_; }
  std::byte* reach(const ArenaHandle& handle) override;
  std::shared_ptr<StreamMark> mark(void* stream) override {
    made_current(device_);
    return std::make_shared<EventMark>(events_, static_cast<cudaStream_t>(stream));
  }
  std::unique_ptr<PeerQueue> open_queue(int max_blocks) override;
  void abort() noexcept override;

 private:
  class Queue;
  struct Upload {  // on its way
    size_t offset;
    std::shared_ptr<DeviceMark> copied;
  };

  void load_kernels();
  ArenaHandle make_handle() const;
  std::shared_ptr<DeviceMark> mark_of(cudaStream_t stream) const {
    return std::make_shared<QueueMark>(events_, stream, stuck());
  }
  const StuckRecord* stuck() const {
    return reinterpret_cast<const StuckRecord*>(control_memory_.data() + kStuckOffset);
  }
  KernelControl control() const;
  void upload(std::byte* to, std::span<const std::byte> from, cudaStream_t stream);
  void launch(const void* kernel, int num_blocks, void* argument, cudaStream_t stream, const char* what) const;

  int device_;
  double timeout_s_;
  std::shared_ptr<cuda::EventPool> events_ = std::make_shared<cuda::EventPool>();
  cuda::Stream setup_;
  cuda::DeviceBlock block_;
  PeerArena arena_;
  ArenaHandle handle_;
  std::map<ArenaHandle, std::byte*> reached_, opened_;  // opened: of other processes
  cuda::PinnedMemory control_memory_;                   // the abort word, then the StuckRecord
  cuda::PinnedMemory pinned_;
  Arena pinned_pieces_{kPinnedBytes, kPinnedAlignment};
  std::list<Upload> uploads_;
  std::vector<cuda::Stream> streams_;  // that no queue has
  std::vector<cudaStream_t> in_use_;   // that queues have
  int num_blocks_left_ = 0;            // that can be resident beside those of the queues that are open
  bool has_remote_domain_ = false;
};

class CudaPeer::Queue final : public PeerQueue {
 public:
  Queue(CudaPeer& peer, cuda::Stream stream, int max_blocks)
      : peer_(peer), stream_(std::move(stream)), max_blocks_(max_blocks) {}
  ~Queue() override {
    std::erase(peer_.in_use_, stream_.get());
    peer_.streams_.push_back(std::move(stream_));
    peer_.num_blocks_left_ += max_blocks_;
  }

  void wait_for(const StreamMark& mark) override {
    made_current(peer_.device_);
    stream_.wait_for(static_cast<const EventMark&>(mark).event());
  }
  void upload(std::byte* to, std::span<const std::byte> from) override { peer_.upload(to, from, stream_.get()); }
  void launch(const ProgramLaunch& program) override {
    GridArguments arguments = arguments_of(program);
    peer_.launch(kernels_of(program.dtype, program.op).interpret, program.num_blocks, &arguments, stream_.get(),
                 "launch of a list");
  }
  void launch(const LowLatencyLaunch& words) override {
    WordArguments arguments{words.arguments, peer_.control()};
    const size_t packs = words.arguments.count * dtype_bytes(words.dtype) / kLowLatencyPackBytes;
    const auto blocks = static_cast<int>(std::clamp<size_t>(packs / kBlockThreads, 1, kMaxWordBlocks));
    peer_.launch(kernels_of(words.dtype, words.op).low_latency, blocks, &arguments, stream_.get(),
                 "launch of an all-reduce");
  }
  void launch(const ProgramLaunch& program, const SliceOrder& slice, size_t bytes) override {
    SliceArguments arguments{arguments_of(program), slice};
    const auto blocks = static_cast<int>(std::clamp<size_t>(bytes / kSliceBlockBytes, 1, kMaxSliceBlocks));
    peer_.launch(kernels_of(program.dtype, program.op).slice, blocks, &arguments, stream_.get(), "launch of a slice");
  }
  std::shared_ptr<DeviceMark> mark() override {
    made_current(peer_.device_);
    return peer_.mark_of(stream_.get());
  }

 private:
  GridArguments arguments_of(const ProgramLaunch& program) const {
    GridArguments arguments;
    arguments.first_rank = static_cast<uint32_t>(program.rank);
    arguments.programs = program.program;
    arguments.input[0] = program.input;
    arguments.output[0] = program.output;
    arguments.control = peer_.control();
    return arguments;
  }

  CudaPeer& peer_;
  cuda::Stream stream_;
  int max_blocks_;
};

CudaPeer::CudaPeer(int device, double timeout_s)
    : device_(made_current(device)),
      timeout_s_(timeout_s),
      block_(kArenaBytes),
      arena_(block_.data(), kArenaBytes, kCleanBytes,
             [this](std::byte* begin, size_t bytes) {
               made_current(device_);
               check_cuda(cudaMemsetAsync(begin, 0, bytes, setup_.get()), "cudaMemsetAsync");
               return mark_of(setup_.get());
             }),
      handle_(make_handle()),
      control_memory_(kStuckOffset + sizeof(StuckRecord)),
      pinned_(kPinnedBytes) {
  block_.zero(kCleanBytes, setup_.get());
  for (int i = 0; i < kNumStreams; ++i) streams_.emplace_back(cuda::Stream::Priority::High);
  int domains = 1;
  check_cuda(cudaDeviceGetAttribute(&domains, cudaDevAttrMemSyncDomainCount, device), "cudaDeviceGetAttribute");
  has_remote_domain_ = domains > 1;
  load_kernels();
  setup_.synchronize();
}

CudaPeer::~CudaPeer() {
  cudaSetDevice(device_);
  cudaDeviceSynchronize();  // kernels end by themselves, or by their deadline
  for (const auto& [handle, base] : opened_) cudaIpcCloseMemHandle(base);
}

/// Loading a kernel may wait for others that run: all are loaded now. Counts the blocks that the GPU holds at once.
void CudaPeer::load_kernels() {
  int num_multiprocessors = 0, fewest = std::numeric_limits<int>::max();
  check_cuda(cudaDeviceGetAttribute(&num_multiprocessors, cudaDevAttrMultiProcessorCount, device_),
             "cudaDeviceGetAttribute");
  for (DType dtype : kAllDTypes) {
    for (ReduceOp op : kAllReduceOps) {
      const KernelSet kernels = kernels_of(dtype, op);
      for (const void* kernel : {kernels.interpret, kernels.slice, kernels.direct, kernels.low_latency}) {
        cudaFuncAttributes attributes{};
        check_cuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
        int resident = 0;
        check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kBlockThreads, 0),
                   "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
        fewest = std::min(fewest, resident);
      }
    }
  }
  num_blocks_left_ = fewest * num_multiprocessors;
}

ArenaHandle CudaPeer::make_handle() const {
  Handle handle{process_token(), block_.data(), device_, {}};
  check_cuda(cudaIpcGetMemHandle(&handle.ipc, block_.data()), "cudaIpcGetMemHandle");
  ArenaHandle bytes{};
  std::memcpy(bytes.data(), &handle, sizeof(handle));
  return bytes;
}

std::byte* CudaPeer::reach(const ArenaHandle& bytes) {
  const auto found = reached_.find(bytes);
  if (found != reached_.end()) return found->second;
  made_current(device_);
  Handle handle{};
  std::memcpy(&handle, bytes.data(), sizeof(handle));
  if (handle.process == process_token()) {
    if (handle.device != device_) {
      const cudaError_t enabled = cudaDeviceEnablePeerAccess(handle.device, 0);
      if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();  // or the next launch would report it
      } else {
        check_cuda(enabled, "cudaDeviceEnablePeerAccess");
      }
    }
    return reached_[bytes] = handle.base;
  }
  void* base = nullptr;
  check_cuda(cudaIpcOpenMemHandle(&base, handle.ipc, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
  return reached_[bytes] = opened_[bytes] = static_cast<std::byte*>(base);
}

std::unique_ptr<PeerQueue> CudaPeer::open_queue(int max_blocks) {
  if (streams_.empty()) {
    throw ConfigError("--gpu-mode: more than " + std::to_string(kNumStreams) +
                      " groups and lanes of messages at once on a GPU (allowed: as many, or --gpu-mode staged)");
  }
  if (max_blocks > num_blocks_left_) {
    throw ConfigError("--gpu-mode peer: the GPU holds " + std::to_string(num_blocks_left_) + " more blocks at once, " +
                      std::to_string(max_blocks) +
                      " are needed for one more group or lane of messages (allowed: fewer"
                      " of them, or --gpu-mode staged)");
  }
  num_blocks_left_ -= max_blocks;
  cuda::Stream stream = std::move(streams_.back());
  streams_.pop_back();
  in_use_.push_back(stream.get());
  return std::make_unique<Queue>(*this, std::move(stream), max_blocks);
}

void CudaPeer::abort() noexcept {
  *reinterpret_cast<volatile uint32_t*>(control_memory_.data()) = 1;
  cudaSetDevice(device_);
  const double end = seconds_now() + 1;
  for (cudaStream_t stream : in_use_) {
    while (cudaStreamQuery(stream) == cudaErrorNotReady && seconds_now() < end) std::this_thread::yield();
  }
}

KernelControl CudaPeer::control() const {
  KernelControl control;
  control.abort = reinterpret_cast<const uint32_t*>(control_memory_.data());
  control.stuck = reinterpret_cast<StuckRecord*>(control_memory_.data() + kStuckOffset);
  control.timeout_ns = static_cast<uint64_t>(timeout_s_ * 1e9);
  return control;
}

void CudaPeer::upload(std::byte* to, std::span<const std::byte> from, cudaStream_t stream) {
  made_current(device_);
  std::erase_if(uploads_, [&](const Upload& upload) {
    if (!upload.copied->done()) return false;
    pinned_pieces_.release(upload.offset);
    return true;
  });
  const auto offset = pinned_pieces_.allocate(from.size());
  if (!offset) throw CommError("pinned memory for tables: " + std::to_string(from.size()) + " bytes do not fit");
  std::byte* const staged = pinned_.data() + *offset;
  std::memcpy(staged, from.data(), from.size());
  check_cuda(cudaMemcpyAsync(to, staged, from.size(), cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync of tables");
  uploads_.push_back({*offset, mark_of(stream)});
}

/// In the memory domain of remote writes, whose fences do not wait for what other kernels of the GPU store locally.
void CudaPeer::launch(const void* kernel, int num_blocks, void* argument, cudaStream_t stream, const char* what) const {
  made_current(device_);
  cudaLaunchAttribute domain{};
  domain.id = cudaLaunchAttributeMemSyncDomain;
  domain.val.memSyncDomain = cudaLaunchMemSyncDomainRemote;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(num_blocks));
  config.blockDim = dim3(kBlockThreads);
  config.stream = stream;
  config.attrs = &domain;
  config.numAttrs = has_remote_domain_ ? 1 : 0;
  void* parameters[] = {argument};
  check_cuda(cudaLaunchKernelExC(&config, kernel, parameters), what);
}

}  // namespace

std::unique_ptr<PeerDevice> make_cuda_peer(int device_index, double timeout_s) {
  return std::make_unique<CudaPeer>(device_index, timeout_s);
}

}  // namespace sixfold::comm
