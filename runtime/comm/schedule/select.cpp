#include "runtime/comm/schedule/select.h"

#include <cstdio>
#include <tuple>

#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

// Direct exchanges between all pairs move as few bytes as a ring and synchronise twice instead of 2(N-1) times; on one
// host, where every pair has its own link, that wins until the pairs are many.
constexpr int kDirectRanks = 8;
// Below this a tree's few hops beat a ring's N - 1.
constexpr size_t kSmallBytes = 64 * 1024;

bool same_group(const SelectRow& row, Primitive primitive, int num_ranks, int num_nodes) {
  return row.primitive == primitive && row.num_ranks == num_ranks && row.num_nodes == num_nodes;
}

bool same_group(const SelectRow& a, const SelectRow& b) {
  return same_group(a, b.primitive, b.num_ranks, b.num_nodes);
}

std::string size_text(size_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return std::to_string(bytes) + " " + kUnits[unit];
}

std::string time_text(double seconds) {
  char text[32];
  if (seconds < 1e-2) {
    std::snprintf(text, sizeof text, "%.1f us", seconds * 1e6);
  } else {
    std::snprintf(text, sizeof text, "%.1f ms", seconds * 1e3);
  }
  return text;
}

std::string line_of(const SelectRow& row) {
  const auto counted = [](int count, const std::string& noun) {
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
  };
  std::string line = std::string(primitive_name(row.primitive)) + ", " + counted(row.num_ranks, "rank") + " on " +
                     counted(row.num_nodes, "node") + ", ";
  line += row.up_to_bytes == kAnyBytes ? "above" : "up to " + size_text(row.up_to_bytes);
  line += ": " + std::string(algorithm_name(row.algorithm));
  if (row.priced_bytes == 0) return line;
  line += " (" + size_text(row.priced_bytes) + ": " + time_text(row.seconds);
  if (row.runner_up != Algorithm::Auto) {
    line += "; " + std::string(algorithm_name(row.runner_up)) + " " + time_text(row.runner_up_seconds);
  }
  return line + ")";
}

}  // namespace

Algorithm select(Primitive primitive, size_t bytes, int size, bool deterministic) {
  if (primitive == Primitive::AllToAll) return Algorithm::Pairwise;
  if (deterministic) return Algorithm::Direct;
  if (primitive == Primitive::Broadcast || primitive == Primitive::Reduce) {
    return bytes <= kSmallBytes ? Algorithm::Tree : Algorithm::Ring;
  }
  if (size <= kDirectRanks) return Algorithm::Direct;
  if (primitive == Primitive::AllReduce && bytes <= kSmallBytes) return Algorithm::Tree;
  return Algorithm::Ring;
}

Algorithm select(Primitive primitive, size_t bytes, const Topology& topology, bool deterministic,
                 const SelectTable& table) {
  if (!deterministic) {
    for (const SelectRow& row : table.rows) {
      if (same_group(row, primitive, topology.size(), topology.num_nodes()) && bytes <= row.up_to_bytes &&
          builder_applies(primitive, row.algorithm, &topology)) {
        return row.algorithm;
      }
    }
  }
  return select(primitive, bytes, topology.size(), deterministic);
}

SelectTable default_select_table(const Topology& topology) {
  SelectTable table;
  for (Primitive primitive : kCollectives) {
    SelectRow row;
    row.primitive = primitive;
    row.num_ranks = topology.size();
    row.num_nodes = topology.num_nodes();
    const Algorithm small = select(primitive, kSmallBytes, topology.size(), false);
    const Algorithm large = select(primitive, kAnyBytes, topology.size(), false);
    if (small != large) {
      row.up_to_bytes = kSmallBytes;
      row.algorithm = small;
      table.rows.push_back(row);
    }
    row.up_to_bytes = kAnyBytes;
    row.algorithm = large;
    table.rows.push_back(row);
  }
  return table;
}

void check_select_table(const SelectTable& table) {
  const auto group_of = [](const SelectRow& row) { return std::tuple(row.primitive, row.num_ranks, row.num_nodes); };
  std::vector<std::tuple<Primitive, int, int>> seen;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const SelectRow& row = table.rows[i];
    const std::string where = "row " + std::to_string(i) + " of a table of algorithms: " + line_of(row);
    SIXFOLD_CHECK(find_builder(row.primitive, row.algorithm) != nullptr, where);
    SIXFOLD_CHECK(row.num_nodes >= 1 && row.num_ranks >= row.num_nodes, where);
    const bool continues = i > 0 && same_group(table.rows[i - 1], row);
    if (continues) {
      SIXFOLD_CHECK_LT(table.rows[i - 1].up_to_bytes, row.up_to_bytes, where);
    } else {
      for (const auto& group : seen) SIXFOLD_CHECK(group != group_of(row), where);
      seen.push_back(group_of(row));
    }
    const bool last = i + 1 == table.rows.size() || !same_group(table.rows[i + 1], row);
    SIXFOLD_CHECK(!last || row.up_to_bytes == kAnyBytes, where);
  }
}

std::string explain(const SelectTable& table) {
  std::string text;
  for (const SelectRow& row : table.rows) text += line_of(row) + "\n";
  return text;
}

}  // namespace sixfold::comm
