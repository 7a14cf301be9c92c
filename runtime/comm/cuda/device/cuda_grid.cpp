// GridDevice on a GPU: every collective is one cooperative grid of (channels x splits, ranks) blocks.
//
// Everything runs on one stream, in the order of launch, so two grids never compete for the multiprocessors that each
// needs as a whole. Tables of lists are uploaded once for each shape, and kept. Memory is taken from CUDA as links and
// shapes are first used: no kernel waits for a rank that is not in its own grid, so that does no harm here.
#include <algorithm>
#include <map>
#include <thread>
#include <tuple>

#include "runtime/comm/cuda/device/kernel_set.h"
#include "runtime/comm/cuda/grid_device.h"
#include "runtime/comm/cuda/program_image.h"
#include "runtime/comm/observe/clock.h"
#include "runtime/comm/schedule/topology.h"
#include "runtime/core/cuda/cuda_error.h"
#include "runtime/core/cuda/device_memory.h"
#include "runtime/core/cuda/stream.h"

namespace sixfold::comm {

namespace {

using cuda::check_cuda;

constexpr int kNumSlots = 8;
constexpr size_t kSlotBytes = 64 * 1024;
constexpr int kMaxSplits = 16;
constexpr size_t kBytesPerSplit = 64 * 1024;  // fewer blocks where each would move less
constexpr int kMaxChannels = 4;
constexpr size_t kStuckOffset = 128;  // in control memory, after the abort word
constexpr size_t kLineBytes = kFlagStride * sizeof(uint64_t);

class MarkedEvent final : public StreamMark {
 public:
  explicit MarkedEvent(cudaStream_t stream) { event_.record(stream); }
  const cuda::Event& event() const { return event_; }

 private:
  cuda::Event event_;
};

/// The tables of all ranks for one shape of collective.
struct GridPlan {
  std::unique_ptr<cuda::DeviceBlock> tables;
  std::vector<std::unique_ptr<cuda::DeviceBlock>> workspaces;  // Scratch and Accum, by rank
  const RankProgram* programs = nullptr;                       // in tables
  unsigned num_blocks = 0;                                     // of one rank
  std::vector<uint64_t> sent_bytes;                            // by rank
  size_t num_passes = 0;
};

class LaunchedWork final : public GridWork {
 public:
  /// `plan`: held until it is done; nullptr for a message.
  LaunchedWork(cudaStream_t stream, const StuckRecord* stuck, std::vector<uint64_t> sent,
               std::shared_ptr<const GridPlan> plan)
      : stuck_(stuck), sent_(std::move(sent)), plan_(std::move(plan)) {
    event_.record(stream);
  }
  bool done() override {
    if (reinterpret_cast<const volatile uint32_t&>(stuck_->set) != 0) throw CommError(to_string(*stuck_));
    return event_.done();
  }
  void order_before(void* stream) override {
    check_cuda(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event_.get(), 0), "cudaStreamWaitEvent");
  }
  uint64_t sent_bytes(int rank) const override { return sent_.at(static_cast<size_t>(rank)); }

 private:
  cuda::Event event_;
  const StuckRecord* stuck_;
  std::vector<uint64_t> sent_;
  std::shared_ptr<const GridPlan> plan_;
};

/// Flags and slots of one link of one block, or flags of one rank; zeroed at the start.
struct LinkMemory {
  std::unique_ptr<cuda::DeviceBlock> memory;
  BlockLink sender, receiver;
};

class CudaGrid final : public GridDevice {
 public:
  CudaGrid(int device, double timeout_s);
  ~CudaGrid() override;

  std::shared_ptr<StreamMark> mark(void* stream) override {
    return std::make_shared<MarkedEvent>(static_cast<cudaStream_t>(stream));
  }
  std::shared_ptr<GridWork> launch(const GridCollective& collective) override;
  std::shared_ptr<GridWork> launch(const GridCopy& copy) override;
  void abort() noexcept override;

 private:
  using LinkKey = std::tuple<int, int, int, int>;  // sender, receiver, channel, split

  void await(const std::vector<std::shared_ptr<StreamMark>>& marks);
  int num_splits(const GridCollective& collective, int num_channels) const;
  int resident_blocks(const void* kernel) const;
  std::shared_ptr<GridWork> launch_direct(const GridCollective& collective);
  const StuckRecord* stuck() const {
    return reinterpret_cast<const StuckRecord*>(control_memory_.data() + kStuckOffset);
  }
  std::shared_ptr<const GridPlan> plan_for(const GridCollective& collective);
  std::shared_ptr<const GridPlan> make_plan(const GridCollective& collective);
  const LinkMemory& link(const LinkKey& key);
  std::byte* flags(int rank);

  int device_, num_multiprocessors_ = 0;
  double timeout_s_;
  cuda::Stream stream_{cuda::Stream::Priority::High};
  cuda::PinnedMemory control_memory_;  // the abort word, then the StuckRecord
  std::map<LinkKey, LinkMemory> links_;
  std::map<int, std::unique_ptr<cuda::DeviceBlock>> flags_;  // by rank
  std::map<std::string, std::shared_ptr<const GridPlan>> plans_;
};

/// Makes the device current for this thread.
int made_current(int device) {
  check_cuda(cudaSetDevice(device), "cudaSetDevice " + std::to_string(device));
  return device;
}

CudaGrid::CudaGrid(int device, double timeout_s)
    : device_(made_current(device)), timeout_s_(timeout_s), control_memory_(kStuckOffset + sizeof(StuckRecord)) {
  check_cuda(cudaDeviceGetAttribute(&num_multiprocessors_, cudaDevAttrMultiProcessorCount, device),
             "cudaDeviceGetAttribute");
}

CudaGrid::~CudaGrid() {
  cudaStreamSynchronize(stream_.get());  // kernels end by themselves, or by their deadline
}

void CudaGrid::await(const std::vector<std::shared_ptr<StreamMark>>& marks) {
  for (const auto& mark : marks) {
    if (mark) stream_.wait_for(static_cast<const MarkedEvent&>(*mark).event());
  }
}

int CudaGrid::resident_blocks(const void* kernel) const {
  int per_multiprocessor = 0;
  check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, kernel, kBlockThreads, 0),
             "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return per_multiprocessor * num_multiprocessors_;
}

int CudaGrid::num_splits(const GridCollective& c, int num_channels) const {
  const int most = resident_blocks(kernels_of(c.dtype, c.op).interpret) / (num_channels * c.call.size);
  if (most < 1) {
    throw ConfigError(std::to_string(c.call.size) + " ranks on one GPU: it does not hold " +
                      std::to_string(num_channels) + " blocks of each at once");
  }
  const size_t bytes = c.call.count * dtype_bytes(c.dtype);
  const auto useful = static_cast<int>(std::min<size_t>(kMaxSplits, bytes / kBytesPerSplit));
  return std::clamp(useful, 1, std::min(most, kMaxSplits));
}

std::shared_ptr<GridWork> CudaGrid::launch(const GridCollective& c) {
  made_current(device_);
  if (c.call.size > kMaxRanksPerGrid) {
    throw ConfigError(std::to_string(c.call.size) + " ranks on one GPU: allowed are up to " +
                      std::to_string(kMaxRanksPerGrid));
  }
  if (c.call.primitive == Primitive::AllReduce && c.algorithm == Algorithm::Direct) return launch_direct(c);
  const std::shared_ptr<const GridPlan> plan = plan_for(c);
  await(c.after);
  if (plan->num_passes > 0) {
    GridArguments arguments;
    arguments.programs = plan->programs;
    std::copy(c.in.begin(), c.in.end(), arguments.input);
    std::copy(c.out.begin(), c.out.end(), arguments.output);
    arguments.control.abort = reinterpret_cast<const uint32_t*>(control_memory_.data());
    arguments.control.stuck = reinterpret_cast<StuckRecord*>(control_memory_.data() + kStuckOffset);
    arguments.control.timeout_ns = static_cast<uint64_t>(timeout_s_ * 1e9);
    void* parameters[] = {&arguments};
    const dim3 grid(plan->num_blocks, static_cast<unsigned>(c.call.size));
    check_cuda(cudaLaunchCooperativeKernel(kernels_of(c.dtype, c.op).interpret, grid, dim3(kBlockThreads), parameters,
                                           0, stream_.get()),
               "launch of " + std::to_string(plan->num_blocks) + " x " + std::to_string(c.call.size) + " blocks");
  }
  return std::make_shared<LaunchedWork>(stream_.get(),
                                        reinterpret_cast<const StuckRecord*>(control_memory_.data() + kStuckOffset),
                                        plan->sent_bytes, plan);
}

std::shared_ptr<GridWork> CudaGrid::launch_direct(const GridCollective& c) {
  DirectArguments arguments;
  arguments.num_ranks = static_cast<uint32_t>(c.call.size);
  arguments.scale = c.op == ReduceOp::Avg ? 1.0f / static_cast<float>(c.call.size) : 1.0f;
  std::copy(c.in.begin(), c.in.end(), arguments.input);
  std::copy(c.out.begin(), c.out.end(), arguments.output);
  set_parts(arguments, c.call.count, dtype_bytes(c.dtype));
  await(c.after);
  if (c.call.count > 0) {
    const size_t per_block = size_t{kBlockThreads} * 16 * arguments.num_ranks;
    const size_t useful = c.call.count * dtype_bytes(c.dtype) / per_block;
    const auto most = static_cast<size_t>(2 * num_multiprocessors_ / c.call.size);
    const dim3 grid(static_cast<unsigned>(std::clamp<size_t>(useful, 1, std::max<size_t>(most, 1))),
                    arguments.num_ranks);
    void* parameters[] = {&arguments};
    check_cuda(
        cudaLaunchKernel(kernels_of(c.dtype, c.op).direct, grid, dim3(kBlockThreads), parameters, 0, stream_.get()),
        "launch of the direct all-reduce");
  }
  std::vector<uint64_t> sent;
  for (uint32_t rank = 0; rank < arguments.num_ranks; ++rank) {
    sent.push_back(direct_sent_elements(arguments, rank) * dtype_bytes(c.dtype));
  }
  return std::make_shared<LaunchedWork>(stream_.get(), stuck(), std::move(sent), nullptr);
}

std::shared_ptr<GridWork> CudaGrid::launch(const GridCopy& copy) {
  made_current(device_);
  await(copy.after);
  if (copy.bytes > 0 && copy.from != copy.to) {
    check_cuda(cudaMemcpyAsync(copy.to, copy.from, copy.bytes, cudaMemcpyDeviceToDevice, stream_.get()),
               "cudaMemcpyAsync of a message");
  }
  return std::make_shared<LaunchedWork>(stream_.get(),
                                        reinterpret_cast<const StuckRecord*>(control_memory_.data() + kStuckOffset),
                                        std::vector<uint64_t>{copy.bytes}, nullptr);
}

std::shared_ptr<const GridPlan> CudaGrid::plan_for(const GridCollective& c) {
  if (c.call.counts != nullptr) return make_plan(c);  // blocks of different size are planned anew each time
  std::string key = std::to_string(static_cast<int>(c.call.primitive)) + " " +
                    std::to_string(static_cast<int>(c.algorithm)) + " " + std::to_string(static_cast<int>(c.dtype)) +
                    " " + std::to_string(static_cast<int>(c.op)) + " " + std::to_string(c.call.size) + " " +
                    std::to_string(c.call.root) + " " + std::to_string(c.call.count) + " " +
                    c.call.topology->to_string() + " ";
  for (bool in_place : c.in_place) key += in_place ? '1' : '0';
  std::shared_ptr<const GridPlan>& plan = plans_[key];
  if (!plan) plan = make_plan(c);
  return plan;
}

std::shared_ptr<const GridPlan> CudaGrid::make_plan(const GridCollective& c) {
  const size_t element_bytes = dtype_bytes(c.dtype), accum_bytes = dtype_bytes(kernels::accum_dtype(c.dtype));
  const Builder build = find_builder(c.call.primitive, c.algorithm);
  Call one = c.call;
  one.pass_count = c.call.counts == nullptr ? c.call.count : 0;
  const int num_channels = std::min(build(one).num_channels, kMaxChannels);
  const BlockShape shape = BlockShape::of(num_splits(c, num_channels), kNumSlots, kSlotBytes, element_bytes);
  const Lowered lowered = lower(c.call, c.in_place, c.algorithm, shape);
  const float scale = c.op == ReduceOp::Avg ? 1.0f / static_cast<float>(c.call.size) : 1.0f;

  auto plan = std::make_shared<GridPlan>();
  plan->num_blocks = static_cast<unsigned>(lowered.num_channels * shape.num_splits);
  plan->num_passes = lowered.num_passes;
  ProgramTables tables;
  for (int rank = 0; rank < c.call.size; ++rank) {
    const ProgramImage image(lowered, rank, scale, [&](int peer, int channel, int split, bool sends) {
      const LinkMemory& found = link(sends ? LinkKey{rank, peer, channel, split} : LinkKey{peer, rank, channel, split});
      return sends ? found.sender : found.receiver;
    });
    const LoweredRank& own = lowered.ranks[static_cast<size_t>(rank)];
    const size_t accum_offset = (own.scratch_count * element_bytes + 255) / 256 * 256;
    auto& workspace = plan->workspaces.emplace_back(
        std::make_unique<cuda::DeviceBlock>(accum_offset + own.accum_count * accum_bytes + 1));
    RankProgram program = image.program;
    program.published = reinterpret_cast<uint64_t*>(flags(rank));
    program.seen = program.published + size_t{kMaxChannels} * kMaxSplits * kFlagStride;
    program.buffers[static_cast<size_t>(Buffer::Scratch)] = workspace->data();
    program.buffers[static_cast<size_t>(Buffer::Accum)] = workspace->data() + accum_offset;
    plan->sent_bytes.push_back(sent_elements(lowered, rank) * element_bytes);
    tables.add(image, program);
  }
  plan->tables = std::make_unique<cuda::DeviceBlock>(tables.bytes());
  std::byte* const base = plan->tables->data();
  plan->programs = reinterpret_cast<const RankProgram*>(base + tables.programs_at());
  const std::vector<std::byte> bytes = tables.at(base);
  // From pageable memory, which has been read when the call returns.
  check_cuda(cudaMemcpyAsync(base, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_.get()),
             "cudaMemcpyAsync of the program tables");
  stream_.synchronize();
  return plan;
}

const LinkMemory& CudaGrid::link(const LinkKey& key) {
  LinkMemory& found = links_[key];
  if (found.memory) return found;
  // tail, head and the counts of both ends, then the slots.
  found.memory = std::make_unique<cuda::DeviceBlock>(4 * kLineBytes + size_t{kNumSlots} * kSlotBytes);
  found.memory->zero(4 * kLineBytes, stream_.get());
  const auto line = [&](size_t i) { return reinterpret_cast<uint64_t*>(found.memory->data() + i * kLineBytes); };
  found.sender = {found.memory->data() + 4 * kLineBytes, line(0), line(1), line(2)};
  found.receiver = {found.memory->data() + 4 * kLineBytes, line(0), line(1), line(3)};
  return found;
}

void CudaGrid::abort() noexcept {
  *reinterpret_cast<volatile uint32_t*>(control_memory_.data()) = 1;
  const double end = seconds_now() + 1;
  while (cudaStreamQuery(stream_.get()) == cudaErrorNotReady && seconds_now() < end) std::this_thread::yield();
}

std::byte* CudaGrid::flags(int rank) {
  std::unique_ptr<cuda::DeviceBlock>& found = flags_[rank];
  if (!found) {
    found = std::make_unique<cuda::DeviceBlock>(2 * size_t{kMaxChannels} * kMaxSplits * kLineBytes);
    found->zero(found->bytes(), stream_.get());
  }
  return found->data();
}

}  // namespace

std::unique_ptr<GridDevice> make_cuda_grid(int device_index, double timeout_s) {
  return std::make_unique<CudaGrid>(device_index, timeout_s);
}

}  // namespace sixfold::comm
