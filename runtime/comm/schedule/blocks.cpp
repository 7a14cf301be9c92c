// Where the blocks of a call lie in its buffers, and what a pass covers of them.
#include <algorithm>

#include "runtime/comm/schedule/builders.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

size_t input_count(Primitive primitive, size_t count, int size) {
  const bool blocks = primitive == Primitive::ReduceScatter || primitive == Primitive::AllToAll;
  return blocks ? count * static_cast<size_t>(size) : count;
}

size_t output_count(Primitive primitive, size_t count, int size) {
  const bool blocks = primitive == Primitive::AllGather || primitive == Primitive::AllToAll;
  return blocks ? count * static_cast<size_t>(size) : count;
}

namespace {

/// Elements of the one block that AllGather's Input and ReduceScatter's Output hold, or of a buffer without blocks.
size_t own_count(const Call& call) {
  return call.counts == nullptr ? call.count : (*call.counts)[static_cast<size_t>(call.rank)];
}

/// Elements of block `index` of a buffer that has one for each rank.
size_t block_count(const Call& call, Buffer buffer, int index) {
  if (call.counts == nullptr) return call.count;
  if (call.primitive != Primitive::AllToAll) return (*call.counts)[static_cast<size_t>(index)];
  const int sender = buffer == Buffer::Input ? call.rank : index,
            receiver = buffer == Buffer::Input ? index : call.rank;
  return (*call.counts)[static_cast<size_t>(sender * call.size + receiver)];
}

/// What the pass covers of `range`, which holds a block.
Range pass_of(const Call& call, const Range& range) {
  const size_t begin = std::min(call.pass_offset, range.count());
  return {range.begin + begin, range.begin + begin + std::min(call.pass_count, range.count() - begin)};
}

bool has_blocks(const Call& call, Buffer buffer) {
  const size_t count_for_two =
      buffer == Buffer::Input ? input_count(call.primitive, 1, 2) : output_count(call.primitive, 1, 2);
  return count_for_two == 2;
}

/// What blocks before `index` have together where all have `even` elements, or `count_of(i)` where sizes differ.
template <typename F>
size_t count_before(const Call& call, int index, size_t even, F&& count_of) {
  if (call.counts == nullptr) return static_cast<size_t>(index) * even;
  size_t count = 0;
  for (int i = 0; i < index; ++i) count += count_of(i);
  return count;
}

}  // namespace

size_t input_count(const Call& call) {
  return has_blocks(call, Buffer::Input) ? block_range(call, Buffer::Input, call.size - 1).end : own_count(call);
}

size_t output_count(const Call& call) {
  return has_blocks(call, Buffer::Output) ? block_range(call, Buffer::Output, call.size - 1).end : own_count(call);
}

Range block_range(const Call& call, Buffer buffer, int index) {
  SIXFOLD_CHECK(call.counts == nullptr || !call.in_place || call.primitive != Primitive::AllToAll,
                "AllToAll in place with blocks of different size");
  const auto count_of = [&](int i) { return block_count(call, buffer, i); };
  const size_t begin = count_before(call, index, call.count, count_of);
  return {begin, begin + count_of(index)};
}

Slice whole(const Call& call, Buffer buffer) {
  const Range pass = pass_of(call, {0, own_count(call)});
  return Slice::of(buffer, pass.begin, pass.count());
}

Slice block(const Call& call, Buffer buffer, int index) {
  if (call.primitive == Primitive::AllReduce) {
    const Range part = part_of(call.pass_count, call.size, index);
    return Slice::of(buffer, call.pass_offset + part.begin, part.count());
  }
  if (buffer == Buffer::Input || buffer == Buffer::Output) {
    const Range pass = pass_of(call, block_range(call, buffer, index));
    return Slice::of(buffer, pass.begin, pass.count());
  }
  const auto covered = [&](int i) { return pass_of(call, {0, block_count(call, buffer, i)}).count(); };
  return Slice::of(buffer, count_before(call, index, call.pass_count, covered), covered(index));
}

Slice blocks(const Call& call, Buffer buffer, int begin, int end) {
  const Slice first = block(call, buffer, begin), last = block(call, buffer, end - 1);
  return Slice::of(buffer, first.offset, last.offset + last.count - first.offset);
}

std::vector<BlockRun> block_runs(const Call& call, int begin, int end, const std::function<size_t(int)>& count_of) {
  std::vector<BlockRun> runs;
  size_t run_count = 0;
  for (int index = begin; index < end; ++index) {
    const size_t count = count_of(index);
    if (runs.empty() || run_count + count > call.step_capacity) {
      runs.push_back({index, index});
      run_count = 0;
    }
    runs.back().end = index + 1;
    run_count += count;
  }
  return runs;
}

std::vector<BlockRun> block_runs(const Call& call, int begin, int end) {
  if (call.pass_offset == 0 && call.pass_count == call.count) {
    const Buffer buffer = call.primitive == Primitive::ReduceScatter ? Buffer::Input : Buffer::Output;
    return block_runs(call, begin, end, [&](int index) { return block_range(call, buffer, index).count(); });
  }
  std::vector<BlockRun> alone;
  for (int index = begin; index < end; ++index) alone.push_back({index, index + 1});
  return alone;
}

}  // namespace sixfold::comm
