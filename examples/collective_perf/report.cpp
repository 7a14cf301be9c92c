#include "examples/collective_perf/report.h"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace sixfold::collective_perf {

namespace {

double algbw_gbs(const Line& line, const Measured& m) {
  return static_cast<double>(line.bytes) / m.seconds * 1e-9;
}

std::string redop_name(const PerfOptions& o) {
  return comm::reduces(parse_operation(o.op)) ? o.redop : "none";
}

bool has_root(const PerfOptions& o) {
  const comm::Primitive primitive = parse_operation(o.op);
  return primitive == comm::Primitive::Broadcast || primitive == comm::Primitive::Reduce;
}

void print_measured(const PerfOptions& o, const Machine& machine, int size, const Line& line,
                    const std::optional<Measured>& m) {
  if (!m) {
    std::printf(" %11s %8s %8s %6s", "-", "-", "-", "-");
    if (o.versus != "none") std::printf(" %11s %8s", "-", "-");
    std::printf(" %7s", "-");
    return;
  }
  const comm::Primitive primitive = parse_operation(o.op);
  const double algbw = algbw_gbs(line, *m);
  const double share = memory_share(machine, primitive, line.bytes, size, m->seconds);
  std::printf(" %11.2f %8.2f %8.2f %6.1f", m->seconds * 1e6, algbw, algbw * comm::busbw_factor(primitive, size),
              share * 100);
  if (o.versus != "none") std::printf(" %11.2f %8.2f", m->versus_seconds * 1e6, m->ratio);
  if (o.check) {
    std::printf(" %7lld", static_cast<long long>(m->num_wrong));
  } else {
    std::printf(" %7s", "N/A");
  }
}

nlohmann::ordered_json json_of(const PerfOptions& o, const Machine& machine, int size, const Line& line,
                               const Measured& m) {
  const comm::Primitive primitive = parse_operation(o.op);
  const double algbw = algbw_gbs(line, m);
  nlohmann::ordered_json json = {{"time_us", m.seconds * 1e6},
                                 {"algbw_gbs", algbw},
                                 {"busbw_gbs", algbw * comm::busbw_factor(primitive, size)},
                                 {"memory_share", memory_share(machine, primitive, line.bytes, size, m.seconds)},
                                 {"rounds", m.num_rounds}};
  if (o.versus != "none") {
    json["versus_time_us"] = m.versus_seconds * 1e6;
    json["versus_ratio"] = m.ratio;
  }
  if (o.check) json["num_wrong"] = m.num_wrong;
  return json;
}

/// Empty where there is no GPU.
std::string gpu_mode(const comm::World& world) {
  return world.gpu_use() == nullptr ? "" : std::string(comm::gpu_mode_name(world.gpu_use()->mode));
}

nlohmann::ordered_json json_of(const comm::World& world, const Machine& machine) {
  nlohmann::ordered_json one_way = nullptr;
  if (machine.one_way_seconds) one_way = *machine.one_way_seconds * 1e9;
  return {{"cores", std::thread::hardware_concurrency()},
          {"more_ranks_than_cores", world.oversubscribed()},
          {"one_way_ns", one_way},
          {"ranks_on_host", machine.num_on_host},
          {"gpu", machine.gpu},
          {"gpu_mode", gpu_mode(world)},
          {"host_copy_gbs", machine.host_copy_gbs()}};
}

}  // namespace

void print_machine(const comm::World& world, const Machine& machine) {
  if (!machine.gpu.empty()) {
    std::printf("# %s, collectives %s; a copy inside its memory reads + writes %.1f GB/s\n", machine.gpu.c_str(),
                gpu_mode(world).c_str(), machine.host_copy_gbs());
    std::printf("# %%mem: bytes that all ranks must read and write in that memory, as share of that\n");
    return;
  }
  std::printf("# %u cores%s; ", std::thread::hardware_concurrency(),
              world.oversubscribed() ? ", fewer than ranks, which take turns" : "");
  if (machine.one_way_seconds) {
    std::printf("rank 1 sees a flag of rank 0 after %.0f ns; ", *machine.one_way_seconds * 1e9);
  } else {
    std::printf("rank 0 shares memory with no rank 1; ");
  }
  std::printf("memcpy by all %d ranks of a host at once reads + writes %.1f GB/s\n", machine.num_on_host,
              machine.host_copy_gbs());
  std::printf(
      "# %%mem: bytes that the operation must read and write, as share of that; above 100, caches carried them\n");
}

void print_header(const PerfOptions& o, const comm::World& world) {
  std::printf("# %s, %d ranks (%s) on %s%s%s, medians of up to %d rounds; time in us, bandwidths in GB/s\n",
              o.op.c_str(), world.size(), world.kind().c_str(), world.topology().to_string().c_str(),
              o.fresh ? ", fresh data" : "", o.plain_buffers ? ", plain buffers" : "", o.rounds);
  const int width = o.versus == "none" ? 45 : 66;
  std::printf("# %12s %12s %5s %5s %4s  %-18s %*s %*s\n", "", "", "", "", "", "", width, "out of place", width,
              "in place");
  std::printf("# %12s %12s %5s %5s %4s  %-18s", "bytes", "count", "type", "redop", "root", "algorithm");
  for (int i = 0; i < 2; ++i) {
    std::printf(" %11s %8s %8s %6s", "time", "algbw", "busbw", "%mem");
    if (o.versus != "none") std::printf(" %11s %8s", ("time " + o.versus).c_str(), (o.versus + "/own").c_str());
    std::printf(" %7s", "#wrong");
  }
  if (!o.world.emulate_links.empty()) std::printf(" %11s %8s", "predicted", "in/pred");
  std::printf("\n");
}

void print_line(const PerfOptions& o, const Machine& machine, int size, const Line& line) {
  const std::string root = has_root(o) ? std::to_string(o.root) : "-1";
  std::printf("  %12llu %12zu %5s %5s %4s  %-18s", static_cast<unsigned long long>(line.bytes), line.count,
              o.dtype.c_str(), redop_name(o).c_str(), root.c_str(), line.algorithm.c_str());
  print_measured(o, machine, size, line, line.out_of_place);
  print_measured(o, machine, size, line, line.in_place);
  if (line.predicted_seconds) {
    std::printf(" %11.2f %8.2f", *line.predicted_seconds * 1e6, line.in_place->seconds / *line.predicted_seconds);
  }
  std::printf("\n");
  std::fflush(stdout);
}

void write_json(const PerfOptions& o, const comm::World& world, const Machine& machine,
                const std::vector<Line>& lines) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const Line& line : lines) {
    nlohmann::ordered_json json = {{"bytes", line.bytes}, {"count", line.count}, {"algorithm", line.algorithm}};
    if (line.predicted_seconds) json["predicted_us"] = *line.predicted_seconds * 1e6;
    if (line.out_of_place) json["out_of_place"] = json_of(o, machine, world.size(), line, *line.out_of_place);
    if (line.in_place) json["in_place"] = json_of(o, machine, world.size(), line, *line.in_place);
    results.push_back(json);
  }
  const nlohmann::ordered_json root = has_root(o) ? nlohmann::ordered_json(o.root) : nlohmann::ordered_json(nullptr);
  const nlohmann::ordered_json json = {
      {"op", o.op},
      {"dtype", o.dtype},
      {"redop", redop_name(o)},
      {"root", root},
      {"ranks", world.size()},
      {"world", world.kind()},
      {"topology", world.topology().to_string()},
      {"machine", json_of(world, machine)},
      {"fresh", o.fresh},
      {"plain_buffers", o.plain_buffers},
      {"rounds", o.rounds},
      {"versus", o.versus == "none" ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(o.versus)},
      {"results", results}};
  std::ofstream file(o.json);
  file << json.dump(2) << "\n";
  file.close();
  if (!file) throw ConfigError("--json " + o.json + ": cannot write it");
}

}  // namespace sixfold::collective_perf
