#include "runtime/comm/schedule/verify.h"

#include <algorithm>

#include "runtime/comm/schedule/replay.h"
#include "runtime/comm/schedule/rounds.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

std::string_view fault_name(Fault fault) {
  switch (fault) {
    case Fault::None:
      return "none";
    case Fault::Deadlock:
      return "deadlock";
    case Fault::SizeMismatch:
      return "size mismatch";
    case Fault::ReadBeforeWrite:
      return "read before write";
    case Fault::DoubleAdd:
      return "double add";
    case Fault::MissingAdd:
      return "missing add";
    case Fault::WrongElement:
      return "wrong element";
    case Fault::Unfinished:
      return "unfinished";
    case Fault::Leftover:
      return "leftover";
    case Fault::Race:
      return "race";
    case Fault::WrongLanding:
      return "wrong landing";
    case Fault::OutOfRange:
      return "out of range";
  }
  return "unknown";
}

namespace {

/// [pass][rank]. An empty operation has one pass all the same: its schedule must be sound too.
std::vector<std::vector<Schedule>> build_passes(Call call, const std::function<Schedule(const Call&)>& builder,
                                                size_t pass_count) {
  std::vector<std::vector<Schedule>> passes;
  for (size_t offset = 0; offset < call.count || passes.empty(); offset += pass_count) {
    call.pass_offset = offset;
    call.pass_count = std::min(pass_count, call.count - offset);
    std::vector<Schedule>& pass = passes.emplace_back();
    for (call.rank = 0; call.rank < call.size; ++call.rank) pass.push_back(builder(call));
  }
  return passes;
}

}  // namespace

VerifyReport verify(const Call& call, const std::function<Schedule(const Call&)>& builder, int num_slots,
                    size_t slot_elements, size_t pass_count) {
  SIXFOLD_CHECK_LE(call.size, kMaxVerifyRanks, "ranks that verify can tell apart");
  SIXFOLD_CHECK(num_slots >= 2 && slot_elements >= 1 && pass_count >= 1,
                "verify needs slots and passes that hold data");
  const auto passes = build_passes(call, builder, pass_count);
  // On one channel a rank is one sequential process on blocking FIFOs, a Kahn network, whose outcome no order of
  // progress can change.
  const bool one_channel = std::all_of(passes[0].begin(), passes[0].end(),
                                       [](const Schedule& schedule) { return schedule.num_channels == 1; });
  VerifyReport report;
  try {
    for (Order order : kOrders) {
      Replay replay(call, passes, num_slots, slot_elements);
      replay.run(order);
      report.sent_elements = replay.sent_elements();
      report.sent_by_link = replay.sent_by_link();
      if (one_channel) break;
    }
    report.rounds = count_rounds(passes[0]);
  } catch (const FaultFound& found) {
    report.fault = found.fault;
    report.sent_elements.clear();
    report.sent_by_link.clear();
    report.detail = std::string(fault_name(found.fault)) + ": " + found.detail;
  }
  return report;
}

}  // namespace sixfold::comm
