#include "runtime/comm/schedule/schedule.h"

#include <algorithm>
#include <limits>

#include "runtime/comm/schedule/builders.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

std::string_view primitive_name(Primitive primitive) {
  switch (primitive) {
    case Primitive::Broadcast:
      return "broadcast";
    case Primitive::Reduce:
      return "reduce";
    case Primitive::AllReduce:
      return "all_reduce";
    case Primitive::AllGather:
      return "all_gather";
    case Primitive::ReduceScatter:
      return "reduce_scatter";
    case Primitive::AllToAll:
      return "all_to_all";
    case Primitive::Send:
      return "send";
    case Primitive::Recv:
      return "recv";
    case Primitive::Barrier:
      return "barrier";
  }
  return "unknown";
}

Primitive parse_primitive(std::string_view name) {
  for (Primitive primitive : kCollectives) {
    if (primitive_name(primitive) == name) return primitive;
  }
  throw ConfigError("primitive '" + std::string(name) +
                    "': allowed are broadcast, reduce, all_reduce, all_gather, reduce_scatter, all_to_all");
}

std::string_view algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::Auto:
      return "auto";
    case Algorithm::Ring:
      return "ring";
    case Algorithm::Tree:
      return "tree";
    case Algorithm::Direct:
      return "direct";
    case Algorithm::Pairwise:
      return "pairwise";
  }
  return "unknown";
}

Algorithm parse_algorithm(std::string_view name) {
  if (name == algorithm_name(Algorithm::Auto)) return Algorithm::Auto;
  for (Algorithm algorithm : kAlgorithms) {
    if (algorithm_name(algorithm) == name) return algorithm;
  }
  throw ConfigError("algorithm '" + std::string(name) + "': allowed are auto, ring, tree, direct, pairwise");
}

namespace {

struct BuilderEntry {
  Primitive primitive;
  Algorithm algorithm;
  Builder builder;
};

constexpr BuilderEntry kBuilders[] = {
    {Primitive::Broadcast, Algorithm::Ring, ring_broadcast},
    {Primitive::Broadcast, Algorithm::Tree, tree_broadcast},
    {Primitive::Broadcast, Algorithm::Direct, direct_broadcast},
    {Primitive::Reduce, Algorithm::Ring, ring_reduce},
    {Primitive::Reduce, Algorithm::Tree, tree_reduce},
    {Primitive::Reduce, Algorithm::Direct, direct_reduce},
    {Primitive::AllReduce, Algorithm::Ring, ring_all_reduce},
    {Primitive::AllReduce, Algorithm::Tree, tree_all_reduce},
    {Primitive::AllReduce, Algorithm::Direct, direct_all_reduce},
    {Primitive::AllGather, Algorithm::Ring, ring_all_gather},
    {Primitive::AllGather, Algorithm::Direct, direct_all_gather},
    {Primitive::ReduceScatter, Algorithm::Ring, ring_reduce_scatter},
    {Primitive::ReduceScatter, Algorithm::Direct, direct_reduce_scatter},
    {Primitive::AllToAll, Algorithm::Pairwise, pairwise_all_to_all},
};

}  // namespace

Builder find_builder(Primitive primitive, Algorithm algorithm) {
  for (const BuilderEntry& entry : kBuilders) {
    if (entry.primitive == primitive && entry.algorithm == algorithm) return entry.builder;
  }
  return nullptr;
}

std::vector<Algorithm> algorithms_of(Primitive primitive) {
  std::vector<Algorithm> found;
  for (Algorithm algorithm : kAlgorithms) {
    if (find_builder(primitive, algorithm) != nullptr) found.push_back(algorithm);
  }
  return found;
}

bool is_one_shot(size_t count, int size) {
  return count <= kOneShotCount / static_cast<size_t>(size);
}

size_t max_pass_count(Primitive primitive, Algorithm algorithm, int size, size_t step_capacity, size_t count) {
  const bool cut_into_parts =
      primitive == Primitive::AllReduce &&
      (algorithm == Algorithm::Ring || (algorithm == Algorithm::Direct && !is_one_shot(count, size)));
  const size_t parts = cut_into_parts ? static_cast<size_t>(size) : 1;
  if (step_capacity > std::numeric_limits<size_t>::max() / parts) return std::numeric_limits<size_t>::max();
  return step_capacity * parts;
}

Range part_of(size_t count, int parts, int index) {
  const size_t n = static_cast<size_t>(parts), i = static_cast<size_t>(index);
  const size_t floor = count / n, num_larger = count % n;
  const size_t begin = i * floor + std::min(i, num_larger);
  return {begin, begin + floor + (i < num_larger ? 1 : 0)};
}

size_t input_count(Primitive primitive, size_t count, int size) {
  const bool blocks = primitive == Primitive::ReduceScatter || primitive == Primitive::AllToAll;
  return blocks ? count * static_cast<size_t>(size) : count;
}

size_t output_count(Primitive primitive, size_t count, int size) {
  const bool blocks = primitive == Primitive::AllGather || primitive == Primitive::AllToAll;
  return blocks ? count * static_cast<size_t>(size) : count;
}

bool reduces(Primitive primitive) {
  return primitive == Primitive::Reduce || primitive == Primitive::AllReduce || primitive == Primitive::ReduceScatter;
}

Slice block(const Call& call, Buffer buffer, int index) {
  if (call.primitive == Primitive::AllReduce) {
    const Range part = part_of(call.pass_count, call.size, index);
    return Slice::of(buffer, call.pass_offset + part.begin, part.count());
  }
  return Slice::of(buffer, static_cast<size_t>(index) * call.count + call.pass_offset, call.pass_count);
}

Schedule single_rank(const Call& call) {
  Schedule schedule;
  if (call.in_place) return schedule;
  Step copy;
  copy.src = whole(call, Buffer::Input);
  copy.dst = whole(call, Buffer::Output);
  copy.finish = reduces(call.primitive);
  schedule.steps.push_back(copy);
  return schedule;
}

void append_send(Schedule& schedule, const Step& step) {
  if (!schedule.steps.empty()) {
    Step& last = schedule.steps.back();
    if (last.send_peer == kNoPeer && last.dst == step.src && last.channel == step.channel && !step.dst.used) {
      last.send_peer = step.send_peer;
      last.stays = step.stays;
      last.lands = step.lands;
      return;
    }
  }
  schedule.steps.push_back(step);
}

namespace {

std::string text_of(const Slice& slice) {
  static constexpr const char* kNames[] = {"Input", "Output", "Scratch", "Accum"};
  return std::string(kNames[static_cast<size_t>(slice.buffer)]) + "[" + std::to_string(slice.offset) + "," +
         std::to_string(slice.offset + slice.count) + ")";
}

}  // namespace

std::string to_string(const Step& step) {
  std::string text;
  const auto append = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (step.recv_peer != kNoPeer) append("recv " + std::to_string(step.recv_peer));
  if (step.src.used) append((step.reduce ? "reduce " : "copy ") + text_of(step.src));
  if (step.dst.used) text += (text.empty() ? "-> " : " -> ") + text_of(step.dst);
  if (step.finish) append("finish");
  if (step.send_peer != kNoPeer) append("send " + std::to_string(step.send_peer));
  if (step.stays) append("stays");
  if (step.lands.used) append("lands in " + text_of(step.lands));
  if (step.after != kNoStep) append("after step " + std::to_string(step.after));
  return "ch" + std::to_string(step.channel) + "  " + text;
}

}  // namespace sixfold::comm
