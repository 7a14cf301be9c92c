#include "examples/compare_strategies/record.h"

#include "runtime/comm/schedule/schedule.h"

namespace sixfold::compare_strategies {

std::vector<PrimitiveSum> StrategyRecord::by_primitive() const {
  std::vector<PrimitiveSum> sums;
  for (int p = 0; p <= static_cast<int>(sixfold::comm::Primitive::Send); ++p) {
    PrimitiveSum sum{std::string(sixfold::comm::primitive_name(static_cast<sixfold::comm::Primitive>(p)))};
    for (const CommEntry& entry : comm) {
      if (entry.primitive != sum.primitive) continue;
      sum.calls += entry.calls;
      sum.sent_bytes = sum_of(sum.sent_bytes, entry.sent_bytes);
      sum.sent_inter_bytes = sum_of(sum.sent_inter_bytes, entry.sent_inter_bytes);
    }
    if (sum.calls > 0) sums.push_back(sum);
  }
  return sums;
}

PrimitiveSum StrategyRecord::all_primitives() const {
  PrimitiveSum all{"all"};
  for (const PrimitiveSum& sum : by_primitive()) {
    all.calls += sum.calls;
    all.sent_bytes = sum_of(all.sent_bytes, sum.sent_bytes);
    all.sent_inter_bytes = sum_of(all.sent_inter_bytes, sum.sent_inter_bytes);
  }
  return all;
}

bool StrategyRecord::counts_links() const {
  return std::all_of(comm.begin(), comm.end(), [](const CommEntry& entry) { return entry.sent_bytes.has_value(); });
}

std::vector<double> StrategyRecord::exposed_steps(const std::vector<std::string>& axes) const {
  std::vector<double> sums(num_counted);
  for (const CommEntry& entry : comm) {
    if (std::find(axes.begin(), axes.end(), axis_of_tag(entry.tag, mesh)) == axes.end()) continue;
    for (size_t i = 0; i < entry.exposed_steps.size(); ++i) sums.at(i) += entry.exposed_steps[i];
  }
  return sums;
}

std::vector<double> StrategyRecord::transfer_steps(const std::vector<std::string>& axes) const {
  std::vector<double> sums = exposed_steps(axes);
  for (const CommEntry& entry : comm) {
    if (std::find(axes.begin(), axes.end(), axis_of_tag(entry.tag, mesh)) == axes.end()) continue;
    for (size_t i = 0; i < entry.late_steps.size(); ++i) sums.at(i) -= entry.late_steps[i];
  }
  return sums;
}

std::string axis_of_tag(const std::string& tag, const parallel::MeshShape& mesh) {
  for (const char* axis : {"tp", "sp", "pp", "hsdp"}) {
    if (tag.starts_with(std::string(axis) + ".")) return axis;
  }
  if (mesh.sp == 1) return "dp";  // dp.*, zero1.* .. zero3.*
  return mesh.dp == 1 ? "sp" : kSharedAxis;
}

}  // namespace sixfold::compare_strategies
