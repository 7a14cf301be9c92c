// GroupPlans: what a group does for each shape of collective, chosen and built at its first call, looked up afterwards.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "runtime/comm/group_backend.h"
#include "runtime/comm/host/choice.h"
#include "runtime/comm/host/plan.h"
#include "runtime/comm/host/signature.h"
#include "runtime/comm/observe/comm_table.h"
#include "runtime/comm/observe/flight_recorder.h"

namespace sixfold::comm {

/// A collective of one shape: the schedules, and its line in the communication table with what a call adds to it.
struct GroupPlan {
  Plan plan;
  Signature signature;
  PhasedRow& row;
  std::string tag;
  RecordedName tag_name;  // the same, for the flight recorder
  uint64_t bytes;
  double predicted_sent_bytes;
  size_t output_bytes;                                // of this rank
  std::shared_ptr<const std::vector<size_t>> counts;  // which plan refers to, if any
};

/// What a group's operations are planned with. References outlive the GroupPlans.
struct PlanningContext {
  int rank;
  const Topology& topology;  // of the group
  const SelectTable& table;
  CommTable& comm_table;
  LinkOptions links;
  Algorithm algorithm;  // where an operation leaves it open
  bool deterministic;
};

class GroupPlans {
 public:
  explicit GroupPlans(const PlanningContext& context) : context_(context) {}
  /// Throws ConfigError where the algorithm asked for does not apply. Blocks of different size are planned anew each
  /// time.
  std::shared_ptr<const GroupPlan> plan_for(const Collective& collective);
  /// The algorithm that a collective runs by, which may not apply (plan_for).
  Algorithm choose(const Collective& collective) const;

 private:
  /// What tells shapes apart.
  struct Shape {
    Primitive primitive;
    DType dtype;
    ReduceOp op;
    Algorithm algorithm;
    bool in_place;
    int root;
    size_t count;
    bool operator==(const Shape&) const = default;
  };
  struct Key {
    Shape shape;
    std::string tag;
  };
  struct View {  // looks a Key up without copying the tag
    Shape shape;
    std::string_view tag;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(const View& view) const;
    size_t operator()(const Key& key) const { return (*this)(View{key.shape, key.tag}); }
  };
  struct Equal {
    using is_transparent = void;
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return a.shape == b.shape && a.tag == b.tag;
    }
  };

  std::shared_ptr<const GroupPlan> make_plan(const Collective& collective);
  bool applies(const Collective& collective, Algorithm algorithm) const;
  void check_applies(const Collective& collective, Algorithm algorithm) const;

  PlanningContext context_;
  std::unordered_map<Key, std::shared_ptr<const GroupPlan>, Hash, Equal> plans_;
};

}  // namespace sixfold::comm
