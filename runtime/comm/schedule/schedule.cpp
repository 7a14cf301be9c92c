#include "runtime/comm/schedule/schedule.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "runtime/comm/schedule/builders.h"
#include "runtime/comm/schedule/topology.h"
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
    case Algorithm::Binomial:
      return "binomial";
    case Algorithm::DoubleTree:
      return "double_tree";
    case Algorithm::RecursiveDoubling:
      return "recursive_doubling";
    case Algorithm::HalvingDoubling:
      return "halving_doubling";
    case Algorithm::SpreadOut:
      return "spread_out";
    case Algorithm::Hierarchical:
      return "hierarchical";
  }
  return "unknown";
}

Algorithm parse_algorithm(std::string_view name) {
  if (name == algorithm_name(Algorithm::Auto)) return Algorithm::Auto;
  for (Algorithm algorithm : kAlgorithms) {
    if (algorithm_name(algorithm) == name) return algorithm;
  }
  std::string allowed(algorithm_name(Algorithm::Auto));
  for (Algorithm algorithm : kAlgorithms) allowed.append(", ").append(algorithm_name(algorithm));
  throw ConfigError("algorithm '" + std::string(name) + "': allowed are " + allowed);
}

namespace {

struct BuilderEntry {
  Primitive primitive;
  Algorithm algorithm;
  Builder builder;
  bool takes_counts = false;
};

constexpr BuilderEntry kBuilders[] = {
    {Primitive::Broadcast, Algorithm::Ring, ring_broadcast},
    {Primitive::Broadcast, Algorithm::Tree, tree_broadcast},
    {Primitive::Broadcast, Algorithm::Direct, direct_broadcast},
    {Primitive::Broadcast, Algorithm::Binomial, binomial_broadcast},
    {Primitive::Broadcast, Algorithm::DoubleTree, double_tree_broadcast},
    {Primitive::Broadcast, Algorithm::Hierarchical, hierarchical_broadcast},
    {Primitive::Reduce, Algorithm::Ring, ring_reduce},
    {Primitive::Reduce, Algorithm::Tree, tree_reduce},
    {Primitive::Reduce, Algorithm::Direct, direct_reduce},
    {Primitive::Reduce, Algorithm::Binomial, binomial_reduce},
    {Primitive::Reduce, Algorithm::DoubleTree, double_tree_reduce},
    {Primitive::Reduce, Algorithm::Hierarchical, hierarchical_reduce},
    {Primitive::AllReduce, Algorithm::Ring, ring_all_reduce},
    {Primitive::AllReduce, Algorithm::Tree, tree_all_reduce},
    {Primitive::AllReduce, Algorithm::Direct, direct_all_reduce},
    {Primitive::AllReduce, Algorithm::DoubleTree, double_tree_all_reduce},
    {Primitive::AllReduce, Algorithm::RecursiveDoubling, recursive_doubling_all_reduce},
    {Primitive::AllReduce, Algorithm::HalvingDoubling, halving_doubling_all_reduce},
    {Primitive::AllReduce, Algorithm::Hierarchical, hierarchical_all_reduce},
    {Primitive::AllGather, Algorithm::Ring, ring_all_gather, true},
    {Primitive::AllGather, Algorithm::Direct, direct_all_gather, true},
    {Primitive::AllGather, Algorithm::RecursiveDoubling, recursive_doubling_all_gather, true},
    {Primitive::AllGather, Algorithm::HalvingDoubling, halving_doubling_all_gather, true},
    {Primitive::AllGather, Algorithm::Hierarchical, hierarchical_all_gather, true},
    {Primitive::ReduceScatter, Algorithm::Ring, ring_reduce_scatter, true},
    {Primitive::ReduceScatter, Algorithm::Direct, direct_reduce_scatter, true},
    {Primitive::ReduceScatter, Algorithm::HalvingDoubling, halving_doubling_reduce_scatter, true},
    {Primitive::ReduceScatter, Algorithm::Hierarchical, hierarchical_reduce_scatter, true},
    {Primitive::AllToAll, Algorithm::Pairwise, pairwise_all_to_all, true},
    {Primitive::AllToAll, Algorithm::SpreadOut, spread_out_all_to_all, true},
    {Primitive::AllToAll, Algorithm::Hierarchical, hierarchical_all_to_all},
};

const BuilderEntry* find_entry(Primitive primitive, Algorithm algorithm) {
  for (const BuilderEntry& entry : kBuilders) {
    if (entry.primitive == primitive && entry.algorithm == algorithm) return &entry;
  }
  return nullptr;
}

}  // namespace

Builder find_builder(Primitive primitive, Algorithm algorithm) {
  const BuilderEntry* entry = find_entry(primitive, algorithm);
  return entry == nullptr ? nullptr : entry->builder;
}

bool builder_applies(Primitive primitive, Algorithm algorithm, const Topology* topology) {
  if (find_entry(primitive, algorithm) == nullptr) return false;
  return algorithm != Algorithm::Hierarchical || (topology != nullptr && topology->ranks_per_node() > 0);
}

std::vector<Algorithm> algorithms_of(Primitive primitive, const Topology* topology) {
  std::vector<Algorithm> found;
  for (Algorithm algorithm : kAlgorithms) {
    if (builder_applies(primitive, algorithm, topology)) found.push_back(algorithm);
  }
  return found;
}

bool supports_counts(Primitive primitive, Algorithm algorithm) {
  const BuilderEntry* entry = find_entry(primitive, algorithm);
  return entry != nullptr && entry->takes_counts;
}

bool is_one_shot(size_t count, int size) {
  const auto n = static_cast<size_t>(size);
  return count <= kOneShotCount / (n * n);
}

namespace {

/// Into how many nearly equal parts the largest step of a pass cuts it.
int parts_of_pass(Primitive primitive, Algorithm algorithm, int size, size_t count, const Topology* topology) {
  if (size == 1) return 1;
  if (algorithm == Algorithm::DoubleTree) return 2;
  if (primitive != Primitive::AllReduce) return 1;
  switch (algorithm) {
    case Algorithm::Ring:
      return size;
    case Algorithm::Direct:
      return is_one_shot(count, size) ? 1 : size;
    case Algorithm::HalvingDoubling:  // the fold moves the whole pass
      return std::has_single_bit(static_cast<unsigned>(size)) ? 2 : 1;
    case Algorithm::Hierarchical:
      SIXFOLD_CHECK(builder_applies(primitive, algorithm, topology), "hierarchical needs nodes of the same size");
      return topology->ranks_per_node() > 1 ? topology->ranks_per_node() : size;
    default:
      return 1;
  }
}

}  // namespace

size_t max_pass_count(Primitive primitive, Algorithm algorithm, int size, size_t step_capacity, size_t count,
                      const Topology* topology) {
  const size_t parts = static_cast<size_t>(parts_of_pass(primitive, algorithm, size, count, topology));
  if (step_capacity > std::numeric_limits<size_t>::max() / parts) return std::numeric_limits<size_t>::max();
  return step_capacity * parts;
}

Range part_of(size_t count, int parts, int index) {
  const size_t n = static_cast<size_t>(parts), i = static_cast<size_t>(index);
  const size_t floor = count / n, num_larger = count % n;
  const size_t begin = i * floor + std::min(i, num_larger);
  return {begin, begin + floor + (i < num_larger ? 1 : 0)};
}

bool reduces(Primitive primitive) {
  return primitive == Primitive::Reduce || primitive == Primitive::AllReduce || primitive == Primitive::ReduceScatter;
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

void append_exchange(Schedule& schedule, const std::vector<Step>& sends, const std::vector<Step>& receives) {
  for (size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
    if (i < sends.size()) append_send(schedule, sends[i]);
    if (i < receives.size()) schedule.steps.push_back(receives[i]);
  }
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
