#include "tests/collective_cases.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <type_traits>

namespace sixfold::test {

std::string to_string(const CollectiveCase& c) {
  std::ostringstream text;
  text << comm::primitive_name(c.primitive) << " " << comm::algorithm_name(c.algorithm) << " count " << c.count << " "
       << dtype_name(c.dtype) << " " << reduce_op_name(c.op) << " root " << c.root << (c.in_place ? " in place" : "")
       << " shift " << c.shift << (c.whole ? "" : " reals");
  return text.str();
}

double input_value(const CollectiveCase& c, int rank, size_t i) {
  const auto h = static_cast<unsigned>(static_cast<size_t>(rank) * 7 + i * 13 + i / 11);
  if (!c.whole) {
    const unsigned mixed = h * 2654435761u;
    const double fraction = static_cast<double>(mixed >> 8) / 0x1p24;  // [0, 1)
    const double value = c.op == ReduceOp::Prod ? 0.75 + 0.5 * fraction
                                                : (fraction - 0.5) * std::ldexp(1.0, static_cast<int>(h % 12) - 6);
    const auto single = static_cast<float>(value);
    if (c.dtype == DType::BF16) return static_cast<float>(BF16(single));
    if (c.dtype == DType::F16) return static_cast<float>(F16(single));
    return single;
  }
  if (c.op == ReduceOp::Prod) return rank < 8 ? 1 + h % 2 : 1;
  return h % 7;  // 16 ranks sum to at most 96: exact in 16-bit floats and in u8
}

namespace {

double combine(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return a + b;
    case ReduceOp::Min:
      return std::min(a, b);
    case ReduceOp::Max:
      return std::max(a, b);
    case ReduceOp::Prod:
      return a * b;
  }
  return 0;
}

/// What element i of the reduced buffer is, in double.
double reduced_value(const CollectiveCase& c, int size, size_t i) {
  double value = input_value(c, 0, i);
  for (int r = 1; r < size; ++r) value = combine(c.op, value, input_value(c, r, i));
  return c.op == ReduceOp::Avg ? value / size : value;
}

/// What element i of `rank`'s output is. in-elements of a block primitive are numbered through the whole input.
double expected_value(const CollectiveCase& c, int rank, int size, size_t i) {
  const size_t block = c.count == 0 ? 0 : i / c.count, within = c.count == 0 ? 0 : i % c.count;
  switch (c.primitive) {
    case comm::Primitive::Broadcast:
      return input_value(c, c.root, i);
    case comm::Primitive::Reduce:
    case comm::Primitive::AllReduce:
      return reduced_value(c, size, i);
    case comm::Primitive::AllGather:
      return input_value(c, static_cast<int>(block), within);
    case comm::Primitive::ReduceScatter:
      return reduced_value(c, size, static_cast<size_t>(rank) * c.count + i);
    case comm::Primitive::AllToAll:
      return input_value(c, static_cast<int>(block), static_cast<size_t>(rank) * c.count + within);
    default:
      return 0;
  }
}

template <typename T>
T element_of(double value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(value);
  } else {
    return T(static_cast<float>(value));
  }
}
template <typename T>
double double_of(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<double>(value);
  } else {
    return static_cast<double>(static_cast<float>(value));
  }
}

/// How far from the exact result of reals an element may be, whatever the order of additions: each of the size - 1
/// operations rounds by at most half a unit of the type that partial sums travel in, relative to the sum of the
/// magnitudes (Higham, "Accuracy and stability of numerical algorithms", 2002, section 4.2); the average scales once
/// more. `magnitude`: sum of the inputs' magnitudes, or the product.
double rounding_bound(const CollectiveCase& c, int size, double magnitude) {
  if (c.op == ReduceOp::Min || c.op == ReduceOp::Max || size == 1) return 0;
  const double unit = c.dtype == DType::BF16 ? 0x1p-8 : c.dtype == DType::F16 ? 0x1p-11 : 0x1p-24;
  const double scaled = c.op == ReduceOp::Avg ? magnitude / size : magnitude;
  const double denormal = c.dtype == DType::F16 ? size * 0x1p-25 : 0;  // half a unit of the smallest numbers
  return 1.01 * (size + 1) * unit * scaled + denormal;
}

/// Of the element of the full buffer that reduces to element i of this rank's output.
double magnitude_of(const CollectiveCase& c, int rank, int size, size_t i) {
  const size_t element = c.primitive == comm::Primitive::ReduceScatter ? static_cast<size_t>(rank) * c.count + i : i;
  double magnitude = c.op == ReduceOp::Prod ? 1 : 0;
  for (int r = 0; r < size; ++r) {
    const double x = std::abs(input_value(c, r, element));
    magnitude = c.op == ReduceOp::Prod ? magnitude * x : magnitude + x;
  }
  return magnitude;
}

size_t count_in(const CollectiveCase& c, int size) {
  return comm::input_count(c.primitive, c.count, size);
}
size_t count_out(const CollectiveCase& c, int size) {
  return comm::output_count(c.primitive, c.count, size);
}
bool is_in_place(const CollectiveCase& c) {
  return c.in_place || c.primitive == comm::Primitive::Broadcast;
}

}  // namespace

comm::Work issue(comm::Communicator& group, const CollectiveCase& c, comm::ConstBuf in, comm::Buf out) {
  comm::Options options;
  options.algorithm = c.algorithm;
  options.tag = "test";
  switch (c.primitive) {
    case comm::Primitive::Broadcast:
      return group.broadcast(out, c.root, options);
    case comm::Primitive::Reduce:
      return group.reduce(in, out, c.op, c.root, options);
    case comm::Primitive::AllReduce:
      return group.all_reduce(in, out, c.op, options);
    case comm::Primitive::AllGather:
      return group.all_gather(in, out, options);
    case comm::Primitive::ReduceScatter:
      return group.reduce_scatter(in, out, c.op, options);
    case comm::Primitive::AllToAll:
      return group.all_to_all(in, out, options);
    default:
      throw CheckError("not a collective");
  }
}

template <typename T>
CaseBuffers<T>::CaseBuffers(Memory& memory, const CollectiveCase& c, int rank, int size)
    : in_buffer(memory, is_in_place(c) ? std::max(count_in(c, size), count_out(c, size)) : count_in(c, size), c.shift),
      out_buffer(memory, count_out(c, size), c.shift),
      in_count(count_in(c, size)),
      out_count(count_out(c, size)),
      in(in_buffer.data()),
      out(out_buffer.data()) {
  if (is_in_place(c)) {
    out = in;
    if (c.primitive == comm::Primitive::AllGather) in += static_cast<size_t>(rank) * c.count;
    if (c.primitive == comm::Primitive::ReduceScatter) out += static_cast<size_t>(rank) * c.count;
  }
  if (c.primitive == comm::Primitive::Broadcast && rank != c.root) return;
  for (size_t i = 0; i < in_count; ++i) in[i] = element_of<T>(input_value(c, rank, i));
}

template <typename T>
std::string CaseBuffers<T>::check(const CollectiveCase& c, int rank, int size) const {
  if (!in_buffer.guards_whole() || !out_buffer.guards_whole()) return to_string(c) + ": wrote outside the buffers";
  if (c.primitive == comm::Primitive::Reduce && rank != c.root) return "";
  for (size_t i = 0; i < out_count; ++i) {
    // Rounded as the dtype stores it: an average of whole numbers need not be one.
    const double exact = expected_value(c, rank, size, i);
    const double wanted = c.whole ? double_of(element_of<T>(exact)) : exact;
    const double got = double_of(out[i]);
    // f32 scales by 1/size, which is not exact for every size; 16-bit types round that away or differ by one unit.
    double slack = c.op == ReduceOp::Avg ? std::abs(wanted) * (sizeof(T) == 2 ? 0x1p-7 : 0x1p-22) : 0;
    if (!c.whole && comm::reduces(c.primitive)) slack = rounding_bound(c, size, magnitude_of(c, rank, size, i));
    if (!(std::abs(got - wanted) <= slack)) {
      std::ostringstream text;
      text << to_string(c) << ", rank " << rank << " of " << size << ": element " << i << " is " << got << ", not "
           << wanted;
      return text.str();
    }
  }
  return "";
}

std::string run_case(comm::Communicator& group, Memory& memory, const CollectiveCase& c) {
  return dispatch(c.dtype, [&](auto element) {
    const int rank = group.rank(), size = group.size();
    CaseBuffers<decltype(element)> buffers(memory, c, rank, size);
    issue(group, c, comm::ConstBuf(buffers.in, buffers.in_count, c.dtype),
          comm::Buf(buffers.out, buffers.out_count, c.dtype))
        .wait();
    return buffers.check(c, rank, size);
  });
}

// For run_case() they are there already; others are to have them, too.
template struct CaseBuffers<float>;
template struct CaseBuffers<BF16>;
template struct CaseBuffers<F16>;
template struct CaseBuffers<int32_t>;
template struct CaseBuffers<int64_t>;
template struct CaseBuffers<uint8_t>;

}  // namespace sixfold::test
