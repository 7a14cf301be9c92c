#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "examples/collective_perf/explain.h"
#include "examples/collective_perf/measure.h"
#include "runtime/comm/observe/tune_file.h"

namespace sixfold::collective_perf {

namespace {

using namespace comm;

/// The quickest algorithm for operations of about `bytes`, on all ranks the same.
SelectRow quickest(PerfOptions options, World& world, const Buffers& buffers, Communicator& clock, size_t bytes) {
  SelectRow row;
  row.primitive = parse_primitive(options.op);
  row.num_ranks = world.size();
  row.num_nodes = world.topology().num_nodes();
  row.algorithm = Algorithm::Auto;
  for (Algorithm algorithm : algorithms_of(row.primitive, &world.topology())) {
    options.algorithm = algorithm_name(algorithm);
    Operation operation(options, world, buffers, bytes, true);
    row.up_to_bytes = operation.bytes();
    const double seconds = measure(options, operation, world.group(), nullptr, clock).seconds;
    if (world.rank() == 0) std::printf(" %11.2f", seconds * 1e6);
    if (row.algorithm != Algorithm::Auto && seconds >= row.seconds) continue;
    row.algorithm = algorithm;
    row.seconds = seconds;
  }
  return row;
}

/// What the file says about other primitives and groups.
SelectTable other_rows(const std::string& path, const SelectRow& measured) {
  SelectTable table;
  if (std::filesystem::exists(path)) table = read_tune_file(path);
  std::erase_if(table.rows, [&](const SelectRow& row) {
    return row.primitive == measured.primitive && row.num_ranks == measured.num_ranks &&
           row.num_nodes == measured.num_nodes;
  });
  return table;
}

}  // namespace

void tune(const PerfOptions& options, World& world) {
  Communicator clock = world.open_group(BackendKind::Own, false);
  const Buffers buffers(options, world);
  const bool speaks = world.rank() == 0;
  if (speaks) {
    std::printf("# %s, %d ranks on %s, medians in us\n# %12s", options.op.c_str(), world.size(),
                world.topology().to_string().c_str(), "bytes");
    for (Algorithm algorithm : algorithms_of(parse_primitive(options.op), &world.topology())) {
      std::printf(" %11.11s", std::string(algorithm_name(algorithm)).c_str());
    }
    std::printf("   quickest\n");
  }
  std::vector<SelectRow> rows;
  for (size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= static_cast<size_t>(options.factor)) {
    if (speaks) std::printf("  %12zu", bytes);
    const SelectRow row = quickest(options, world, buffers, clock, bytes);
    if (speaks) std::printf("   %s\n", std::string(algorithm_name(row.algorithm)).c_str());
    std::fflush(stdout);
    const bool goes_on = !rows.empty() && rows.back().algorithm == row.algorithm;
    if (goes_on) rows.back().up_to_bytes = row.up_to_bytes;
    if (!goes_on) rows.push_back(row);
  }
  if (!speaks || rows.empty()) return;
  rows.back().up_to_bytes = kAnyBytes;
  SelectTable table = other_rows(options.tune, rows.front());
  table.rows.insert(table.rows.end(), rows.begin(), rows.end());
  write_tune_file(options.tune, table);
}

}  // namespace sixfold::collective_perf
