// Groups that are made of a group.
#include <algorithm>

#include "runtime/comm/host/host_barrier.h"
#include "runtime/comm/host/own_group.h"

namespace sixfold::comm {

std::unique_ptr<OwnGroup> OwnGroup::split_own(int color, int key) {
  // Everyone learns everyone's (color, key), and each works out its own group.
  const int64_t mine[2] = {color, key};
  std::vector<int64_t> all(2 * static_cast<size_t>(size()));
  Collective gather;
  gather.primitive = Primitive::AllGather;
  gather.in = mine;
  gather.out = all.data();
  gather.count = 2;
  gather.dtype = DType::I64;
  gather.algorithm = Algorithm::Direct;
  gather.tag = "split";
  context_.engine.wait(*start(gather));

  std::vector<std::pair<int64_t, int>> order;  // (key, rank in this group)
  for (int r = 0; r < size(); ++r) {
    const bool together = color < 0 ? r == rank() : all[2 * static_cast<size_t>(r)] == color;
    if (together) order.emplace_back(all[2 * static_cast<size_t>(r) + 1], r);
  }
  std::sort(order.begin(), order.end());
  std::vector<int> members;
  int new_rank = 0;
  for (const auto& [unused, r] : order) {
    if (r == rank()) new_rank = static_cast<int>(members.size());
    members.push_back(world_rank(r));
  }
  return open_among(split_name(key_, num_splits_++, color, rank()), std::move(members), new_rank);
}

std::unique_ptr<OwnGroup> OwnGroup::beside(const std::string& suffix) {
  return open_among(key_ + "." + suffix, links_.members(), rank());
}

std::unique_ptr<OwnGroup> OwnGroup::open_among(const std::string& name, std::vector<int> members, int new_rank) {
  auto group = std::make_unique<OwnGroup>(context_, name, std::move(members), new_rank);
  host_barrier(*this, "split");
  return group;
}

}  // namespace sixfold::comm
