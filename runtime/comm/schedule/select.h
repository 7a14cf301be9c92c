// select(): which algorithm runs, where the caller leaves the choice to us. Every rank of a group must get the same
// answer, so it depends on nothing but the operation, the group and a table that all ranks have.
//
// A table comes from the cost model (tune.h), from measurements (observe/tune_file.h) or, where there is neither, from
// the rule below, which suits one host.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "runtime/comm/schedule/schedule.h"
#include "runtime/comm/schedule/topology.h"

namespace sixfold::comm {

inline constexpr size_t kAnyBytes = std::numeric_limits<size_t>::max();

/// Operations of one primitive, in groups of `num_ranks` ranks on `num_nodes` nodes, of up to `up_to_bytes` (and more
/// than the row before) run by `algorithm`.
struct SelectRow {
  Primitive primitive = Primitive::AllReduce;
  int num_ranks = 1;
  int num_nodes = 1;
  size_t up_to_bytes = kAnyBytes;
  Algorithm algorithm = Algorithm::Ring;

  // Why, for explain(): predicted for priced_bytes. 0, and Auto, where nothing was predicted or nothing else exists.
  size_t priced_bytes = 0;
  double seconds = 0;
  Algorithm runner_up = Algorithm::Auto;
  double runner_up_seconds = 0;
};

/// Rows of one primitive and kind of group stand together, in ascending order of up_to_bytes, the last of them without
/// a limit. A kind of group that has no rows is left to the rule.
struct SelectTable {
  std::vector<SelectRow> rows;
};

/// By the rule for one host. `bytes` as operation_bytes() counts them. Only algorithms that exist for the primitive are
/// returned. deterministic: results must not depend on message size or chunking, which is what direct gives.
Algorithm select(Primitive primitive, size_t bytes, int size, bool deterministic);

/// By `table`, where it has rows for the group. Deterministic groups are left to the rule.
Algorithm select(Primitive primitive, size_t bytes, const Topology& topology, bool deterministic,
                 const SelectTable& table);

/// The rule as a table, for groups such as `topology`.
SelectTable default_select_table(const Topology& topology);

/// Throws CheckError unless the rows are in the order that SelectTable states and name algorithms that exist.
void check_select_table(const SelectTable& table);

/// One line a row, for --debug: "all_reduce, 8 ranks on 2 nodes, up to 64 KiB: tree (64 KiB: 21.4 us; ring 58.0 us)".
std::string explain(const SelectTable& table);

}  // namespace sixfold::comm
