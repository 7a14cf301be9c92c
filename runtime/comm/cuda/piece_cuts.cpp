#include "runtime/comm/cuda/piece_cuts.h"

#include <algorithm>

namespace sixfold::comm {

namespace {

constexpr size_t kMaxElementBytes = 8;
constexpr size_t kRounding = 64;  // elements: pieces begin where vectors do

bool has_blocks(Primitive primitive, Buffer buffer) {
  return (buffer == Buffer::Input ? input_count(primitive, 1, 2) : output_count(primitive, 1, 2)) == 2;
}

/// What this rank brings, or takes away.
bool takes_part(const Call& call, Buffer buffer) {
  const bool is_root = call.rank == call.root;
  if (call.primitive == Primitive::Broadcast) return is_root == (buffer == Buffer::Input);
  return call.primitive != Primitive::Reduce || buffer == Buffer::Input || is_root;
}

std::vector<PieceSpan> spans(const Call& call, Buffer buffer, size_t begin, size_t end) {
  if (!takes_part(call, buffer)) return {};
  std::vector<Range> blocks;
  if (has_blocks(call.primitive, buffer)) {
    for (int r = 0; r < call.size; ++r) blocks.push_back(block_range(call, buffer, r));
  } else {
    blocks.push_back({0, buffer == Buffer::Input ? input_count(call) : output_count(call)});
  }
  std::vector<PieceSpan> found;
  size_t staged = 0;
  for (const Range& block : blocks) {
    const size_t first = std::min(begin, block.count()), last = std::min(end, block.count());
    if (first < last) found.push_back({block.begin + first, staged, last - first});
    staged += last - first;
  }
  return found;
}

}  // namespace

size_t piece_step(Primitive primitive, int size, size_t element_bytes, size_t piece_bytes) {
  const bool blocks = has_blocks(primitive, Buffer::Input) || has_blocks(primitive, Buffer::Output);
  const size_t step = piece_bytes / element_bytes / (blocks ? static_cast<size_t>(size) : 1);
  return std::max<size_t>(1, step >= kRounding ? step - step % kRounding : step);
}

size_t piece_side_bytes(int size, size_t piece_bytes) {
  return std::max(piece_bytes, static_cast<size_t>(size) * kMaxElementBytes);
}

PieceCut cut_piece(const Call& call, size_t begin, size_t end) {
  PieceCut cut;
  cut.count = end - begin;
  if (call.counts != nullptr) {
    std::vector<size_t> counts;
    for (size_t count : *call.counts) counts.push_back(std::min(end, count) - std::min(begin, count));
    cut.count = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
    cut.counts = std::make_shared<const std::vector<size_t>>(std::move(counts));
  }
  cut.in = spans(call, Buffer::Input, begin, end);
  cut.out = spans(call, Buffer::Output, begin, end);
  return cut;
}

}  // namespace sixfold::comm
