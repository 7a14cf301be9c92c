#include "examples/collective_perf/options.h"

#include <CLI/CLI.hpp>

#include "runtime/core/error.h"

namespace sixfold::collective_perf {

Parsed parse_options(int argc, const char* const* argv, bool speaks) {
  CLI::App app{"Times the collectives, like nccl-tests"};
  PerfOptions o;
  std::string comm = "own";
  app.add_option("--op", o.op, "broadcast, reduce, all_reduce, all_gather, reduce_scatter or all_to_all")
      ->capture_default_str();
  app.add_option("--algorithm", o.algorithm, "auto, or one of those that exist for --op")->capture_default_str();
  app.add_option("--dtype", o.dtype, "f32, bf16, f16, i32, i64 or u8")->capture_default_str();
  app.add_option("--redop", o.redop, "sum, avg, min, max or prod")->capture_default_str();
  app.add_option("--root", o.root, "Root of broadcast and reduce")->capture_default_str();
  app.add_option("--min-bytes", o.min_bytes, "Smallest buffer")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--max-bytes", o.max_bytes, "Largest buffer")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--factor", o.factor, "From one size to the next")->capture_default_str()->check(CLI::Range(2, 1024));
  app.add_option("--iters", o.iters, "Operations a round; 0: as many as take 4 ms")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--rounds", o.rounds, "Rounds that the median is taken over")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--warmup", o.warmup, "Rounds before those")->capture_default_str()->check(CLI::NonNegativeNumber);
  app.add_option("--ranks", o.world.num_ranks, "Ranks as threads; 0: those of mpirun")->capture_default_str();
  app.add_option("--comm", comm, "own or mpi")->capture_default_str()->check(CLI::IsMember({"own", "mpi"}));
  app.add_option("--versus", o.versus, "Take turns with this backend, and print the ratio")
      ->check(CLI::IsMember({"mpi"}));
  app.add_option("--profile", o.world.profile, "Name or file of a hardware profile that algorithms are chosen by");
  app.add_option("--tune-file", o.world.tune_file, "File of measured rows that algorithms are chosen by");
  app.add_option("--tune", o.tune, "Measure all algorithms of --op at all sizes, and write the quickest to this file");
  app.add_flag("--explain", o.explain, "Print the schedule of --min-bytes and what it would cost; run nothing");
  app.add_flag("--debug", o.world.debug, "Say what topology, rings and trees there are, what is chosen and why");
  app.add_option("--topology", o.world.topology, "NODESxRANKS: declare the ranks to be on so many nodes");
  app.add_flag("--force-mpi-links", o.world.force_mpi_links, "MPI carries what goes between the nodes of --topology");
  app.add_option("--emulate-links", o.world.emulate_links,
                 "intra=GB/s,inter=GB/s,scale=X: pace links inside and between nodes to these rates x scale");
  app.add_option("--slot-bytes", o.world.links.slot_bytes, "Bytes of a link's slot")->capture_default_str();
  app.add_option("--num-slots", o.world.links.num_slots, "Slots of a link")->capture_default_str();
  app.add_option("--min-in-place-bytes", o.world.links.min_in_place_bytes,
                 "Slices from here on are read and written in the peers' buffers")
      ->capture_default_str();
  app.add_flag("--check,!--no-check", o.check, "Compare each result with what arithmetic says (#wrong)")
      ->capture_default_str();
  app.add_option("--timeout", o.world.timeout_s, "Seconds without any progress after which a wait is an error")
      ->capture_default_str();
  app.add_option("--flight-recorder", o.world.flight_recorder_dir,
                 "Folder where a run that fails writes flight-recorder.json, the last operations of every rank");
  app.add_option("--json", o.json, "Write the table to this file");
  app.add_flag("--plain-buffers", o.plain_buffers, "Buffers that peers cannot reach: every byte is staged");
  app.add_flag(
      "--fresh", o.fresh,
      "Each rank writes its whole input before and reads its whole output after every operation; the same cycle "
      "without the operation is subtracted: what a trainer pays");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = speaks ? app.exit(error) : error.get_exit_code();
    return {std::nullopt, code == 0 ? 0 : 2};
  }
  const comm::Primitive primitive = comm::parse_primitive(o.op);
  const comm::Algorithm algorithm = comm::parse_algorithm(o.algorithm);
  const int num_ranks = comm::planned_world_size(o.world);
  const comm::Topology topology = o.world.topology.empty() ? comm::Topology::one_node(num_ranks)
                                                           : comm::Topology::parse(o.world.topology, num_ranks);
  if (algorithm != comm::Algorithm::Auto && !comm::builder_applies(primitive, algorithm, &topology)) {
    std::string allowed = "auto";
    for (comm::Algorithm other : comm::algorithms_of(primitive, &topology))
      allowed += ", " + std::string(comm::algorithm_name(other));
    throw ConfigError("--algorithm " + o.algorithm + " for --op " + o.op + ": allowed are " + allowed);
  }
  if (o.root < 0 || o.root >= num_ranks) {
    throw ConfigError("--root " + std::to_string(o.root) + ": allowed are 0 to " + std::to_string(num_ranks - 1));
  }
  if (o.min_bytes > o.max_bytes && !o.explain) {
    throw ConfigError("--min-bytes " + std::to_string(o.min_bytes) + ": allowed are 1 to --max-bytes, that is " +
                      std::to_string(o.max_bytes));
  }
  if (!o.versus.empty() && o.world.num_ranks > 0) {
    throw ConfigError("--versus mpi: not together with --ranks, whose ranks are threads; start them with mpirun");
  }
  if (!kernels::reduce_supported(parse_dtype(o.dtype), parse_reduce_op(o.redop))) {
    throw ConfigError("--redop " + o.redop + " of --dtype " + o.dtype + ": allowed are sum, min, max, prod");
  }
  o.world.backend = comm == "mpi" ? comm::BackendKind::Mpi : comm::BackendKind::Own;
  if (!o.explain) comm::check_world_options(o.world);  // which asks for what can be started
  return {o, 0};
}

}  // namespace sixfold::collective_perf
