// The product of everything that a collective may be asked for, all of it or a pairwise covering part. Serves thread
// ranks and mpirun alike.
#pragma once

#include <array>
#include <map>
#include <optional>

#include "tests/collective_cases.h"
#include "tests/covering.h"

namespace sixfold::test {

/// What one World is made with.
struct WorldCase {
  int num_ranks = 1;
  std::string topology;
  bool in_place_links = false;  // full slices stay out of the slots
  int num_slots = 2;
  bool operator<(const WorldCase& o) const {
    return std::tie(num_ranks, topology, in_place_links, num_slots) <
           std::tie(o.num_ranks, o.topology, o.in_place_links, o.num_slots);
  }
  comm::WorldOptions options() const {
    comm::WorldOptions options;
    options.topology = topology;
    options.links.num_slots = num_slots;
    options.links.slot_bytes = 128;
    options.links.min_in_place_bytes = in_place_links ? 128 : SIZE_MAX;
    options.links.min_lend_bytes = num_slots == 2 ? 128 : SIZE_MAX;
    options.timeout_s = 30;
    return options;
  }
};

class CollectiveProduct {
 public:
  explicit CollectiveProduct(std::vector<int> ranks) : ranks_(std::move(ranks)) {
    for (comm::Primitive primitive : comm::kCollectives) {
      for (comm::Algorithm algorithm : comm::kAlgorithms) {
        if (comm::find_builder(primitive, algorithm) != nullptr) builders_.emplace_back(primitive, algorithm);
      }
    }
  }

  using Cases = std::map<WorldCase, std::vector<CollectiveCase>>;

  Cases covering() const {
    Cases cases;
    for (const Choice& choice : covering_choices(num_values(), [this](const Choice& c) { return allowed(c); })) {
      cases[world_of(choice)].push_back(case_of(choice));
    }
    return cases;
  }

  /// Calls f(world, cases) for every number of ranks, twice: staged in few slots on one node, and in place with more
  /// slots on two nodes (one rank each where they do not divide). The cases are all that there are, but for alignment,
  /// which goes with the count.
  template <typename F>
  void for_all(F&& f) const {
    Choice choice(num_values().size(), 0);
    for (choice[kRanks] = 0; choice[kRanks] < ranks_.size(); ++choice[kRanks]) {
      for (size_t second : {size_t{0}, size_t{1}}) {
        choice[kLinks] = choice[kSlots] = choice[kNodes] = second;
        if (!topology_of(choice)) choice[kNodes] = ranks_[choice[kRanks]] > 1 ? 3 : 0;
        f(world_of(choice), cases_of_world(choice));
      }
    }
  }

 private:
  enum Factor { kRanks, kNodes, kLinks, kSlots, kBuilder, kCount, kDType, kOp, kRoot, kInPlace, kShift, kData };

  std::vector<size_t> num_values() const {
    return {ranks_.size(),
            4,
            2,
            2,
            builders_.size(),
            kCounts.size() + 3,
            std::size(kAllDTypes),
            std::size(kAllReduceOps),
            3,
            2,
            2,
            2};
  }

  /// One node, two, four, or one for each rank; none where the ranks do not divide.
  std::optional<std::string> topology_of(const Choice& c) const {
    const int n = ranks_[c[kRanks]];
    const int nodes = std::array<int, 4>{1, 2, 4, n}[c[kNodes]];
    if (n % nodes != 0 || (c[kNodes] > 0 && nodes == 1)) return std::nullopt;
    return std::to_string(nodes) + "x" + std::to_string(n / nodes);
  }
  WorldCase world_of(const Choice& c) const {
    return {ranks_[c[kRanks]], *topology_of(c), c[kLinks] == 1, c[kSlots] == 0 ? 2 : 5};
  }

  CollectiveCase case_of(const Choice& c) const {
    const int n = ranks_[c[kRanks]];
    CollectiveCase result;
    std::tie(result.primitive, result.algorithm) = builders_[c[kBuilder]];
    const size_t around = static_cast<size_t>(n) + c[kCount] - kCounts.size() - 1;  // n - 1, n, n + 1
    result.count = c[kCount] < kCounts.size() ? kCounts[c[kCount]] : around;
    result.dtype = kAllDTypes[c[kDType]];
    result.op = kAllReduceOps[c[kOp]];
    result.root = std::array<int, 3>{0, n / 2, n - 1}[c[kRoot]];
    result.in_place = c[kInPlace] == 1;
    result.shift = c[kShift];
    result.whole = c[kData] == 0;
    return result;
  }

  bool allowed(const Choice& c) const {
    if (!topology_of(c)) return false;
    const CollectiveCase x = case_of(c);
    const comm::Topology topology = comm::Topology::parse(*topology_of(c), ranks_[c[kRanks]]);
    const bool rooted = x.primitive == comm::Primitive::Broadcast || x.primitive == comm::Primitive::Reduce;
    const bool real = x.dtype == DType::F32 || x.dtype == DType::BF16 || x.dtype == DType::F16;
    return comm::builder_applies(x.primitive, x.algorithm, &topology) && (rooted || c[kRoot] == 0) &&
           (comm::reduces(x.primitive) ? kernels::reduce_supported(x.dtype, x.op) : c[kOp] == 0) && (x.whole || real);
  }

  std::vector<CollectiveCase> cases_of_world(Choice c) const {
    const std::vector<size_t> sizes = num_values();
    std::vector<CollectiveCase> cases;
    const std::function<void(size_t)> choose = [&](size_t factor) {
      if (factor == sizes.size()) {
        if (allowed(c)) cases.push_back(case_of(c));
        return;
      }
      if (factor == kShift) {
        c[kShift] = c[kCount] % 2;
        return choose(factor + 1);
      }
      for (c[factor] = 0; c[factor] < sizes[factor]; ++c[factor]) choose(factor + 1);
    };
    choose(kBuilder);
    return cases;
  }

  inline static const std::vector<size_t> kCounts = {0, 1, 2, 127, 128, 129, 1000, 1003, 1009};
  std::vector<int> ranks_;
  std::vector<std::pair<comm::Primitive, comm::Algorithm>> builders_;
};

}  // namespace sixfold::test
