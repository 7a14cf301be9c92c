#include "runtime/comm/cuda/chunk_cuts.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

void insert(std::vector<size_t>& cuts, size_t at) {
  const auto found = std::lower_bound(cuts.begin(), cuts.end(), at);
  if (found == cuts.end() || *found != at) cuts.insert(found, at);
}

/// What travels, or moves, in a step: its source, or where what it receives goes.
const Slice& moved(const Step& step) {
  return step.src.used ? step.src : step.dst;
}

}  // namespace

std::vector<std::pair<StepPlace, StepPlace>> match_messages(const std::vector<Schedule>& schedules) {
  using Link = std::tuple<int, int, int>;  // sender, receiver, channel
  std::map<Link, std::vector<StepPlace>> sends, receives;
  for (size_t rank = 0; rank < schedules.size(); ++rank) {
    const int r = static_cast<int>(rank);
    for (size_t i = 0; i < schedules[rank].steps.size(); ++i) {
      const Step& step = schedules[rank].steps[i];
      if (step.count() == 0) continue;
      if (step.send_peer != kNoPeer) sends[{r, step.send_peer, step.channel}].push_back({r, i});
      if (step.recv_peer != kNoPeer) receives[{step.recv_peer, r, step.channel}].push_back({r, i});
    }
  }
  std::vector<std::pair<StepPlace, StepPlace>> matched;
  const auto step_at = [&](const StepPlace& at) { return schedules[static_cast<size_t>(at.rank)].steps[at.step]; };
  for (const auto& [link, sent] : sends) {
    const auto& [sender, receiver, channel] = link;
    const std::string text = "messages from rank " + std::to_string(sender) + " to rank " + std::to_string(receiver) +
                             " on channel " + std::to_string(channel);
    const std::vector<StepPlace>& received = receives[link];
    SIXFOLD_CHECK_EQ(sent.size(), received.size(), text);
    for (size_t k = 0; k < sent.size(); ++k) {
      SIXFOLD_CHECK_EQ(step_at(sent[k]).count(), step_at(received[k]).count(), text);
      matched.emplace_back(sent[k], received[k]);
    }
  }
  SIXFOLD_CHECK_EQ(sends.size(), receives.size(), "links that are sent to, and received from");
  return matched;
}

ChunkCuts::ChunkCuts(const Call& call, const std::vector<Schedule>& schedules) : ranks_(schedules.size()) {
  for (size_t r = 0; r < schedules.size(); ++r) {
    Call own = call;
    own.rank = static_cast<int>(r);
    if (call.primitive == Primitive::AllGather) {
      ranks_[r].input_base = block_range(own, Buffer::Output, own.rank).begin;
    } else if (call.primitive == Primitive::ReduceScatter) {
      ranks_[r].output_base = block_range(own, Buffer::Input, own.rank).begin;
    }
  }
  std::vector<std::pair<Span, Span>> alike;
  for (size_t r = 0; r < schedules.size(); ++r) {
    const int rank = static_cast<int>(r);
    for (const Step& step : schedules[r].steps) {
      if (step.count() == 0) continue;
      for (const Slice& slice : {step.src, step.dst}) {
        if (!slice.used) continue;
        const Span span = span_of(rank, slice);
        insert(*span.memory, span.begin);
        insert(*span.memory, span.begin + span.count);
      }
      if (step.src.used && step.dst.used) alike.emplace_back(span_of(rank, step.src), span_of(rank, step.dst));
    }
  }
  for (const auto& [sent, received] : match_messages(schedules)) {
    const auto span_at = [&](const StepPlace& at) {
      return span_of(at.rank, moved(schedules[static_cast<size_t>(at.rank)].steps[at.step]));
    };
    alike.emplace_back(span_at(sent), span_at(received));
  }
  spread(alike);
  cut_buffers(schedules);
}

ChunkCuts::Span ChunkCuts::span_of(int rank, const Slice& slice) {
  RankCuts& own = ranks_[static_cast<size_t>(rank)];
  switch (slice.buffer) {
    case Buffer::Input:
      return {&own.shared, own.input_base + slice.offset, slice.count};
    case Buffer::Output:
      return {&own.shared, own.output_base + slice.offset, slice.count};
    case Buffer::Scratch:
      return {&own.scratch, slice.offset, slice.count};
    case Buffer::Accum:
      break;
  }
  return {&own.accum, slice.offset, slice.count};
}

void ChunkCuts::spread(const std::vector<std::pair<Span, Span>>& alike) {
  const auto carry = [](const Span& from, const Span& to) {
    // Collected first: the two may be the same memory.
    const auto first = std::upper_bound(from.memory->begin(), from.memory->end(), from.begin);
    const auto last = std::lower_bound(first, from.memory->end(), from.begin + from.count);
    const std::vector<size_t> inside(first, last);
    const size_t before = to.memory->size();
    for (size_t cut : inside) insert(*to.memory, cut - from.begin + to.begin);
    return to.memory->size() > before;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [a, b] : alike) {
      changed |= carry(a, b);
      changed |= carry(b, a);
    }
  }
}

/// From cuts of memory to those of the buffers in it.
void ChunkCuts::cut_buffers(const std::vector<Schedule>& schedules) {
  for (size_t r = 0; r < schedules.size(); ++r) {
    for (const Step& step : schedules[r].steps) {
      if (step.count() == 0) continue;
      for (const Slice& slice : {step.src, step.dst}) {
        if (!slice.used) continue;
        const Span span = span_of(static_cast<int>(r), slice);
        const size_t base = span.begin - slice.offset;
        std::vector<uint64_t>& cuts = ranks_[r].cuts[static_cast<size_t>(slice.buffer)];
        const auto first = std::lower_bound(span.memory->begin(), span.memory->end(), span.begin);
        const auto last = std::upper_bound(first, span.memory->end(), span.begin + span.count);
        for (auto cut = first; cut != last; ++cut) cuts.push_back(*cut - base);
      }
    }
    for (std::vector<uint64_t>& cuts : ranks_[r].cuts) {
      std::sort(cuts.begin(), cuts.end());
      cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    }
  }
}

const std::vector<uint64_t>& ChunkCuts::of(int rank, Buffer buffer) const {
  return ranks_[static_cast<size_t>(rank)].cuts[static_cast<size_t>(buffer)];
}

}  // namespace sixfold::comm
