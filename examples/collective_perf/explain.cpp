#include "examples/collective_perf/explain.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include "runtime/comm/host/choice.h"
#include "runtime/comm/observe/comm_table.h"
#include "runtime/comm/observe/profile_file.h"
#include "runtime/comm/schedule/closed_form.h"
#include "runtime/comm/schedule/cost.h"
#include "runtime/comm/schedule/describe.h"
#include "runtime/comm/schedule/verify.h"

namespace sixfold::collective_perf {

namespace {

using namespace comm;

Profile profile_of(const WorldOptions& world) {
  if (!world.emulate_links.empty()) return emulated_profile(world);
  return load_profile(world.profile.empty() ? "host" : world.profile);
}

/// What verify says of the schedules, where they are small enough to be replayed.
void print_proof(const Call& call, Algorithm algorithm, const PerfOptions& o, size_t element_bytes) {
  if (call.size > kMaxVerifyRanks || call.count > (size_t{1} << 20)) return;
  const size_t pass_count =
      max_pass_count(call.primitive, algorithm, call.size, call.step_capacity, call.count, call.topology);
  const VerifyReport report = verify(call, find_builder(call.primitive, algorithm), o.world.links.num_slots,
                                     o.world.links.slot_bytes / element_bytes, pass_count);
  if (!report.ok()) {
    std::printf("verified: %s\n", report.detail.c_str());
    return;
  }
  const auto [least, most] = std::minmax_element(report.sent_elements.begin(), report.sent_elements.end());
  std::printf("verified: right; %d rounds a pass; each rank sends %zu to %zu bytes\n", report.rounds,
              *least * element_bytes, *most * element_bytes);
}

/// By simulation, or by closed form where that would take too long.
void print_prediction(const Call& call, Algorithm algorithm, const PerfOptions& o) {
  const Topology& topology = *call.topology;
  const Profile profile = profile_of(o.world);
  CostQuery query;
  query.primitive = call.primitive;
  query.algorithm = algorithm;
  query.num_nodes = topology.num_nodes();
  query.ranks_per_node = topology.ranks_per_node();  // options declare nodes of one size only
  query.count = call.count;
  query.element_bytes = dtype_bytes(parse_dtype(o.dtype));
  query.links = {o.world.links.num_slots, o.world.links.slot_bytes};
  const Prediction prediction = predict_seconds(query, profile);
  std::printf("%s by %s, %zu elements of %s on %d node(s) of %d rank(s): %.1f us on profile %s (%s)\n", o.op.c_str(),
              std::string(algorithm_name(algorithm)).c_str(), call.count, o.dtype.c_str(), query.num_nodes,
              query.ranks_per_node, prediction.seconds * 1e6, profile.name.c_str(),
              prediction.simulated ? "simulated" : "closed form");
}

// Schedules of more ranks fill the screen and say nothing new.
constexpr int kMaxListedRanks = 64;

Call call_of(const PerfOptions& o, const Topology& topology, size_t count) {
  Call call;
  call.primitive = parse_primitive(o.op);
  call.size = topology.size();
  call.root = o.root;
  call.count = count;
  call.topology = &topology;
  const LinkShape links{o.world.links.num_slots, o.world.links.slot_bytes};
  call.step_capacity = links.step_capacity(dtype_bytes(parse_dtype(o.dtype)));
  return call;
}

}  // namespace

CostReport predict(const PerfOptions& o, const Topology& topology, Algorithm algorithm, size_t count) {
  const Call call = call_of(o, topology, count);
  const size_t pass_count =
      max_pass_count(call.primitive, algorithm, call.size, call.step_capacity, call.count, &topology);
  return simulate(call, find_builder(call.primitive, algorithm), {o.world.links.num_slots, o.world.links.slot_bytes},
                  dtype_bytes(parse_dtype(o.dtype)), pass_count, profile_of(o.world));
}

void explain(const PerfOptions& o) {
  const int size = planned_world_size(o.world);
  const Topology topology =
      o.world.topology.empty() ? Topology::one_node(size) : Topology::parse(o.world.topology, size);
  const size_t element_bytes = dtype_bytes(parse_dtype(o.dtype));
  const bool blocks = operation_bytes(parse_primitive(o.op), 1, size, 1) > 1;
  Call call = call_of(o, topology, o.min_bytes / element_bytes / (blocks ? static_cast<size_t>(size) : 1));

  Algorithm algorithm = parse_algorithm(o.algorithm);
  if (algorithm == Algorithm::Auto) {
    AlgorithmChoice choice(o.world, static_cast<unsigned>(size) > std::thread::hardware_concurrency());
    const size_t bytes = operation_bytes(call.primitive, call.count, size, element_bytes);
    algorithm = select(call.primitive, bytes, topology, false, choice.table_for(topology).rows);
  }
  if (size > kMaxListedRanks) return print_prediction(call, algorithm, o);
  const Builder builder = find_builder(call.primitive, algorithm);
  const size_t pass_count = max_pass_count(call.primitive, algorithm, size, call.step_capacity, call.count, &topology);
  call.pass_count = std::min(pass_count, call.count);
  std::printf("%s", describe_group(topology).c_str());
  std::printf("%s by %s, %zu elements of %s in %zu pass(es); the first:\n", o.op.c_str(),
              std::string(algorithm_name(algorithm)).c_str(), call.count, o.dtype.c_str(),
              call.count == 0 ? 0 : (call.count + pass_count - 1) / pass_count);
  std::printf("%s", describe_schedule(call, builder).c_str());
  print_proof(call, algorithm, o, element_bytes);
  print_prediction(call, algorithm, o);
}

}  // namespace sixfold::collective_perf
