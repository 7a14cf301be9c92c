#include "runtime/comm/host/group_plans.h"

#include "runtime/comm/observe/predict.h"
#include "runtime/comm/schedule/select.h"

namespace sixfold::comm {

namespace {

// A program whose shapes never repeat does not fill its memory with plans.
constexpr size_t kMaxPlans = 1024;

/// What all ranks must agree on. Of counts per rank the signature holds a hash, in the place of the root; those of an
/// AllToAll, of which each rank knows its own only, have been compared before.
Signature signature_of(const Collective& c, Algorithm algorithm) {
  Signature signature{c.primitive, c.dtype, c.op, algorithm, c.root, c.count};
  if (!c.counts) return signature;
  if (c.primitive == Primitive::AllToAll) {
    signature.count = 0;
    return signature;
  }
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (size_t count : *c.counts) hash = (hash ^ count) * 0x100000001b3u;
  signature.root = static_cast<int32_t>((hash ^ hash >> 32) & 0x7fffffff);
  return signature;
}

}  // namespace

size_t GroupPlans::Hash::operator()(const View& view) const {
  const Shape& s = view.shape;
  const uint64_t kind = static_cast<uint64_t>(s.primitive) | static_cast<uint64_t>(s.dtype) << 8 |
                        static_cast<uint64_t>(s.op) << 16 | static_cast<uint64_t>(s.algorithm) << 24 |
                        static_cast<uint64_t>(s.in_place) << 32 | static_cast<uint64_t>(s.root) << 33;
  const uint64_t mixed = (kind ^ s.count * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
  return static_cast<size_t>(mixed ^ mixed >> 32) ^ std::hash<std::string_view>()(view.tag);
}

std::shared_ptr<const GroupPlan> GroupPlans::plan_for(const Collective& c) {
  if (c.counts) return make_plan(c);
  const View view{{c.primitive, c.dtype, c.op, c.algorithm, c.in_place, c.root, c.count}, c.tag};
  const auto found = plans_.find(view);
  if (found != plans_.end()) return found->second;
  if (plans_.size() == kMaxPlans) plans_.clear();
  return plans_.emplace(Key{view.shape, std::string(c.tag)}, make_plan(c)).first->second;
}

std::shared_ptr<const GroupPlan> GroupPlans::make_plan(const Collective& c) {
  const Algorithm algorithm = choose(c);
  check_applies(c, algorithm);
  const size_t element_bytes = dtype_bytes(c.dtype);
  Call call = c.call(context_.rank, context_.topology);
  call.step_capacity = LinkShape{context_.links.num_slots, context_.links.slot_bytes}.step_capacity(element_bytes);
  const size_t pass_count =
      max_pass_count(c.primitive, algorithm, call.size, call.step_capacity, c.count, &context_.topology);
  const std::string tag(c.tag);
  return std::make_shared<const GroupPlan>(
      GroupPlan{Plan(call, find_builder(c.primitive, algorithm), pass_count), signature_of(c, algorithm),
                context_.comm_table.row(tag, c.primitive, algorithm, "own", call.size), tag, RecordedName(tag),
                operation_bytes(call, element_bytes),
                predicted_sent_elements(algorithm, call) * static_cast<double>(element_bytes),
                output_count(call) * element_bytes, c.counts});
}

Algorithm GroupPlans::choose(const Collective& c) const {
  // All ranks must choose alike: of an AllToAll with counts per peer each knows its own part only.
  const bool known = !c.counts || c.primitive != Primitive::AllToAll;
  const size_t bytes = known ? operation_bytes(c.call(context_.rank, context_.topology), dtype_bytes(c.dtype)) : 0;
  const Algorithm automatic = select(c.primitive, bytes, context_.topology, context_.deterministic, context_.table);
  if (context_.deterministic) return automatic;
  if (c.algorithm != Algorithm::Auto) return c.algorithm;
  // The World's default names one algorithm for all primitives; those that it does not exist for keep the automatic
  // one.
  const bool usable = context_.algorithm != Algorithm::Auto && applies(c, context_.algorithm);
  return usable ? context_.algorithm : automatic;
}

bool GroupPlans::applies(const Collective& c, Algorithm algorithm) const {
  return builder_applies(c.primitive, algorithm, &context_.topology) &&
         (!c.counts || supports_counts(c.primitive, algorithm));
}

/// Throws ConfigError with the algorithms that do.
void GroupPlans::check_applies(const Collective& c, Algorithm algorithm) const {
  if (applies(c, algorithm)) return;
  std::string allowed = "auto";
  for (Algorithm other : kAlgorithms) {
    if (applies(c, other)) allowed += ", " + std::string(algorithm_name(other));
  }
  throw ConfigError("algorithm '" + std::string(algorithm_name(algorithm)) + "' for " +
                    std::string(primitive_name(c.primitive)) + (c.counts ? " with counts per rank" : "") +
                    " in a group on " + context_.topology.to_string() + ": allowed are " + allowed);
}

}  // namespace sixfold::comm
