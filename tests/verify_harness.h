// What tests of verify share: calls, and builders run on passes as large as the slots allow.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/comm/schedule/topology.h"
#include "runtime/comm/schedule/verify.h"
#include "tests/harness.h"

namespace sixfold::comm {

inline Call make_call(Primitive primitive, int size, size_t count, int root = 0, bool in_place = false) {
  Call call;
  call.primitive = primitive;
  call.size = size;
  call.root = root;
  call.count = count;
  call.in_place = in_place;
  return call;
}

/// 1 .. 17, 32 and 64 ranks. The largest replays take most of the time; under a sanitizer, which looks at the replay
/// and not at the schedules, they would show nothing that 17 ranks do not.
inline std::vector<int> verified_sizes() {
  std::vector<int> sizes;
  for (int size = 1; size <= 17; ++size) sizes.push_back(size);
#ifdef __SANITIZE_ADDRESS__
  return {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17};
#endif
  sizes.insert(sizes.end(), {32, 64});
  return sizes;
}

inline bool has_root(Primitive primitive) {
  return primitive == Primitive::Broadcast || primitive == Primitive::Reduce;
}

/// Passes as executors cut them. Call::step_capacity is left as it is in `call`.
inline VerifyReport verify_builder(const Call& call, Algorithm algorithm, int num_slots, size_t slot_elements) {
  const size_t capacity = static_cast<size_t>(num_slots - 1) * slot_elements;
  return verify(call, find_builder(call.primitive, algorithm), num_slots, slot_elements,
                max_pass_count(call.primitive, algorithm, call.size, capacity, call.count, call.topology));
}

/// With Call::step_capacity, which makes some builders move several blocks a step.
inline VerifyReport verify_joined(Call call, Algorithm algorithm, int num_slots, size_t slot_elements) {
  call.step_capacity = static_cast<size_t>(num_slots - 1) * slot_elements;
  return verify_builder(call, algorithm, num_slots, slot_elements);
}

inline std::string describe(const Call& call, Algorithm algorithm) {
  return std::string(primitive_name(call.primitive)) + " " + std::string(algorithm_name(algorithm)) + " size " +
         std::to_string(call.size) + " count " + std::to_string(call.count) + " root " + std::to_string(call.root) +
         (call.in_place ? " in place" : "") + (call.topology == nullptr ? "" : " on " + call.topology->to_string());
}

struct BuilderCase {
  Primitive primitive;
  Algorithm algorithm;
};

/// Every builder that applies to a group on `topology`.
inline std::vector<BuilderCase> all_builders(const Topology* topology = nullptr) {
  std::vector<BuilderCase> cases;
  for (Primitive primitive : kCollectives) {
    for (Algorithm algorithm : algorithms_of(primitive, topology)) cases.push_back({primitive, algorithm});
  }
  return cases;
}

inline std::string case_name(const BuilderCase& c) {
  return std::string(primitive_name(c.primitive)) + "_" + std::string(algorithm_name(c.algorithm));
}

}  // namespace sixfold::comm
