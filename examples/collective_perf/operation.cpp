#include "examples/collective_perf/operation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

namespace sixfold::collective_perf {

using comm::Primitive;

Buffers::Buffers(const PerfOptions& options, comm::World& world) {
  const DType dtype = parse_dtype(options.dtype);
  const auto elements = static_cast<int64_t>(largest_bytes(options) / dtype_bytes(dtype));
  if (on_gpu(options)) {
    constexpr size_t kRounding = 4096;  // a Memory rounds blocks up
    const size_t bytes = 2 * (largest_bytes(options) + largest_bytes(options) / 8 + kRounding);
    device_memory = std::make_unique<Memory>(make_device_allocator(bytes));
    in = Tensor::empty({elements}, dtype, *device_memory, Category::Communication);
    out = Tensor::empty({elements}, dtype, *device_memory, Category::Communication);
    return;
  }
  // Communication: peers reach the buffers.
  const Category category = options.plain_buffers ? Category::Other : Category::Communication;
  in = Tensor::zeros({elements}, dtype, world.memory(), category);
  out = Tensor::zeros({elements}, dtype, world.memory(), category);
}

Operation::Operation(const PerfOptions& options, comm::World& world, const Buffers& buffers, size_t bytes,
                     bool in_place)
    : primitive_(parse_operation(options.op)),
      dtype_(parse_dtype(options.dtype)),
      op_(parse_reduce_op(options.redop)),
      rank_(world.rank()),
      size_(world.size()),
      root_(options.root),
      on_gpu_(on_gpu(options)) {
  options_.algorithm = comm::parse_algorithm(options.algorithm);
  options_.tag = "perf";
  const size_t elements = bytes / dtype_bytes(dtype_), n = static_cast<size_t>(size_);
  const bool blocks = comm::operation_bytes(primitive_, 1, size_, 1) > 1;
  count_ = blocks ? elements / n : elements;

  const auto first = [](const Tensor& buffer, size_t count) { return buffer.slice(0, {static_cast<int64_t>(count)}); };
  const size_t num_in = comm::input_count(primitive_, count_, size_);
  const size_t num_out = comm::output_count(primitive_, count_, size_);
  const auto own_block = [&](const Tensor& full) {
    return full.slice(static_cast<int64_t>(count_) * rank_, {static_cast<int64_t>(count_)});
  };
  if (!in_place) {
    in_ = first(buffers.in, num_in);
    out_ = first(buffers.out, num_out);
  } else if (primitive_ == Primitive::AllGather) {
    out_ = first(buffers.out, num_out);
    in_ = own_block(out_);
  } else if (primitive_ == Primitive::ReduceScatter) {
    in_ = first(buffers.in, num_in);
    out_ = own_block(in_);
  } else {
    in_ = out_ = first(buffers.in, num_in);
  }
}

void Operation::run(comm::Communicator& group) const {
  switch (primitive_) {
    case Primitive::Broadcast:
      return group.broadcast(out_, root_, options_).wait();
    case Primitive::Reduce:
      return group.reduce(in_, out_, op_, root_, options_).wait();
    case Primitive::AllReduce:
      return group.all_reduce(in_, out_, op_, options_).wait();
    case Primitive::AllGather:
      return group.all_gather(in_, out_, options_).wait();
    case Primitive::ReduceScatter:
      return group.reduce_scatter(in_, out_, op_, options_).wait();
    case Primitive::AllToAll:
      return group.all_to_all(in_, out_, options_).wait();
    default:
      return exchange(group);
  }
}

void Operation::exchange(comm::Communicator& group) const {
  const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
  const comm::P2p transfers[] = {{comm::P2p::Kind::Send, in_, next, options_},
                                 {comm::P2p::Kind::Recv, out_, previous, options_}};
  group.batch(transfers).wait();
}

void Operation::write() const {
  auto* words = static_cast<uint64_t*>(in_.raw());
  // Zeros, but the compiler does not know it: a memset writes in a way of its own, past the caches when it is long.
  const uint64_t value = zero_;
  // At the memory's speed: a slower loop would hide what it costs to fetch the lines back from a peer's cache.
#pragma omp simd
  for (size_t i = 0; i < in_.bytes() / 8; ++i) words[i] = value;
}

void Operation::read() {
  const auto* words = static_cast<const uint64_t*>(out_.raw());
  uint64_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (size_t i = 0; i < out_.bytes() / 8; ++i) sum += words[i];
  sink_ = sum;
}

/// Whole numbers that differ from rank to rank and element to element (11 and 13 have no factor in common with any
/// modulus), small enough for every dtype to hold what any number of them up to `size_` reduces to (integers wrap,
/// which is exact as well).
double Operation::input_value(int rank, size_t element) const {
  const size_t h = static_cast<size_t>(rank) * 11 + element * 13 + element / 11;
  if (op_ == ReduceOp::Prod) return rank < 8 ? static_cast<double>(1 + h % 2) : 1;
  return static_cast<double>(h % std::clamp<size_t>(256 / static_cast<size_t>(size_), 2, 7));
}

double Operation::expected_value(size_t element) const {
  const size_t block = element / count_, within = element % count_, own = static_cast<size_t>(rank_) * count_;
  switch (primitive_) {
    case Primitive::Broadcast:
      return input_value(root_, element);
    case Primitive::AllGather:
      return input_value(static_cast<int>(block), within);
    case Primitive::AllToAll:
      return input_value(static_cast<int>(block), own + within);
    case Primitive::Send:
      return input_value((rank_ + size_ - 1) % size_, element);
    default:
      break;
  }
  const size_t reduced = primitive_ == Primitive::ReduceScatter ? own + element : element;
  double value = input_value(0, reduced);
  for (int r = 1; r < size_; ++r) {
    const double x = input_value(r, reduced);
    if (op_ == ReduceOp::Min) value = std::min(value, x);
    if (op_ == ReduceOp::Max) value = std::max(value, x);
    if (op_ == ReduceOp::Prod) value *= x;
    if (op_ == ReduceOp::Sum || op_ == ReduceOp::Avg) value += x;
  }
  return op_ == ReduceOp::Avg ? value / size_ : value;
}

namespace {

template <typename T>
T element_of(double value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<int64_t>(value));
  } else {
    return T(static_cast<float>(value));
  }
}

template <typename T>
bool is_right(T found, double expected, ReduceOp op) {
  if constexpr (std::is_integral_v<T>) {
    return found == element_of<T>(expected);
  } else {
    // 1 / size is rounded, so an average may be off by a unit in the last place.
    const double unit = op == ReduceOp::Avg ? (sizeof(T) == 2 ? 0x1p-7 : 0x1p-22) : 0;
    const double wanted = static_cast<double>(static_cast<float>(element_of<T>(expected)));
    return std::abs(static_cast<double>(static_cast<float>(found)) - wanted) <= unit * std::abs(wanted);
  }
}

}  // namespace

/// What the operation before has left in the output must not pass for a result of this one. `staged`: on a GPU, as many
/// bytes on the host.
void Operation::poison_output(void* staged) const {
  const auto begin = [](const Tensor& buffer) { return static_cast<const std::byte*>(buffer.raw()); };
  const bool apart = begin(out_) + out_.bytes() <= begin(in_) || begin(in_) + in_.bytes() <= begin(out_);
  if (!apart || out_.bytes() == 0) return;
  std::memset(on_gpu_ ? staged : out_.raw(), 0xA5, out_.bytes());
  if (on_gpu_) copy_to_device(out_.raw(), staged, out_.bytes());
}

int64_t Operation::check(comm::Communicator& group) const {
  return dispatch(dtype_, [&](auto type) {
    using T = decltype(type);
    const bool has_input = primitive_ != Primitive::Broadcast || rank_ == root_;
    // On a GPU, elements are made and looked at on the host.
    std::vector<T> staged(on_gpu_ ? static_cast<size_t>(std::max(in_.numel(), out_.numel())) : 0);
    poison_output(staged.data());
    T* in = on_gpu_ ? staged.data() : in_.data<T>();
    for (size_t i = 0; has_input && i < static_cast<size_t>(in_.numel()); ++i) {
      in[i] = element_of<T>(input_value(rank_, i));
    }
    if (on_gpu_ && has_input) copy_to_device(in_.raw(), in, in_.bytes());
    run(group);
    const bool has_output = primitive_ != Primitive::Reduce || rank_ == root_;
    const T* out = on_gpu_ ? staged.data() : out_.data<T>();
    if (on_gpu_ && has_output) copy_to_host(staged.data(), out_.raw(), out_.bytes());
    int64_t num_wrong = 0;
    for (size_t i = 0; has_output && i < static_cast<size_t>(out_.numel()); ++i) {
      num_wrong += !is_right(out[i], expected_value(i), op_);
    }
    return num_wrong;
  });
}

}  // namespace sixfold::collective_perf
