// What tests of schedules share: every builder, on the groups and topologies that it exists for.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "runtime/comm/schedule/topology.h"
#include "tests/harness.h"

namespace sixfold::comm {

inline constexpr size_t kHuge = (size_t{1} << 31) + 17;  // does not fit in 32 bits, neither do its bytes

/// All of `count` elements in one pass.
inline Call make_call(Primitive primitive, int size, size_t count) {
  Call call;
  call.primitive = primitive;
  call.size = size;
  call.count = count;
  call.pass_count = count;
  return call;
}

inline Call on_rank(Call call, int rank) {
  call.rank = rank;
  return call;
}

/// On which topologies a builder is asked: hierarchical on all M x n, the others on none.
inline std::vector<const Topology*> topologies_of(Algorithm algorithm, int size) {
  if (algorithm != Algorithm::Hierarchical) return {nullptr};
  static std::map<std::string, Topology> known;
  std::vector<const Topology*> found;
  for (int nodes = 1; nodes <= size; ++nodes) {
    if (size % nodes != 0) continue;
    const std::string text = std::to_string(nodes) + "x" + std::to_string(size / nodes);
    found.push_back(&known.try_emplace(text, Topology::parse(text, size)).first->second);
  }
  return found;
}

/// Calls f(builder, call, algorithm) for all builders and topologies; `call` has `count` elements in one pass.
template <typename F>
void for_each_builder(const std::vector<int>& sizes, size_t count, F&& f) {
  for (Primitive primitive : kCollectives) {
    for (Algorithm algorithm : kAlgorithms) {
      const Builder builder = find_builder(primitive, algorithm);
      if (builder == nullptr) continue;
      for (int size : sizes) {
        for (const Topology* topology : topologies_of(algorithm, size)) {
          SCOPED_TRACE(std::string(primitive_name(primitive)) + " " + std::string(algorithm_name(algorithm)) +
                       " size " + std::to_string(size) + (topology == nullptr ? "" : " on " + topology->to_string()));
          Call call = make_call(primitive, size, count);
          call.topology = topology;
          f(builder, call, algorithm);
        }
      }
    }
  }
}

}  // namespace sixfold::comm
