#include "examples/train_gpt/plan.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>
#include <sstream>

#include "examples/common/outputs.h"
#include "runtime/comm/cuda/gpu_provider.h"
#include "runtime/comm/nccl/stream_queue.h"
#include "runtime/core/cores.h"
#include "runtime/core/device.h"
#include "runtime/core/env.h"

namespace sixfold::train_gpt {

namespace {

comm::WorldOptions world_options(const Options& options) {
  comm::WorldOptions world;
  world.num_ranks = options.ranks;
  world.backend = options.comm == "mpi" ? comm::BackendKind::Mpi : comm::BackendKind::Own;
  world.algorithm = options.algorithm == "auto" ? comm::Algorithm::Auto : comm::parse_algorithm(options.algorithm);
  world.deterministic = options.deterministic;
  world.timeout_s = options.timeout;
  world.flight_recorder_dir = options.flight_recorder;
  world.topology = options.topology;
  world.emulate_links = options.emulate_links;
  world.profile = options.profile;
  world.tune_file = options.tune_file;
  world.debug = options.debug;
  world.force_mpi_links = options.force_mpi_links;
  world.progress_thread = comm::parse_progress_thread(options.progress_thread);
  if (world.backend == comm::BackendKind::Mpi && world.algorithm != comm::Algorithm::Auto) {
    throw ConfigError("--algorithm " + options.algorithm +
                      ": not together with --comm mpi, which has its own (allowed: auto)");
  }
  comm::check_world_options(world);
  return world;
}

/// An option that the user has given and that nothing in this run would look at is a mistake.
void check_given(const Options& options) {
  const auto refuse = [&](const std::string& flag, const auto& value, const std::string& with,
                          const std::string& allowed) {
    if (options.given.count(flag) == 0) return;
    std::ostringstream text;
    text << flag << " " << value << " with " << with << ": has no effect there (allowed: with " << allowed << ")";
    throw ConfigError(text.str());
  };
  if (!options.val_data.empty()) {
    refuse("--val-fraction", options.val_fraction, "--val-data " + options.val_data, "--data alone");
  }
  const std::string zero = "--zero " + std::to_string(options.zero);
  if (options.zero != 3) refuse("--prefetch", options.prefetch, zero, "--zero 3");
  if (options.zero == 3) refuse("--bucket-mb", options.bucket_mb, zero + ", whose buckets are units", "--zero 0, 1, 2");
  if (options.pp == 1 && options.pp_schedule != "interleaved") {  // which is refused for what it needs
    refuse("--pp-schedule", options.pp_schedule, "--pp 1", "--pp 2 or more");
  }
  if (options.pp_schedule != "interleaved") {
    refuse("--virtual-stages", options.virtual_stages, "--pp-schedule " + options.pp_schedule,
           "--pp-schedule interleaved");
  }
}

/// Weights, gradients and two moments in f32: bytes a parameter on each rank.
double bytes_per_parameter(const Options& options, int data_ranks) {
  const double shards = options.hsdp ? 1 : data_ranks;  // a node's number of ranks is not known yet
  const double whole[] = {16, 8, 4, 0};                 // by stage
  return whole[options.zero] + (16 - whole[options.zero]) / shards;
}

/// Of all ranks on this machine: roughly, but known before anything is made.
void check_model_memory(const Options& options, const parallel::MeshShape& mesh, const models::GptConfig& model) {
  const double dim = static_cast<double>(model.dim), layers = static_cast<double>(model.num_layers);
  const double parameters =
      layers * dim * (12 * dim + 13) + dim * static_cast<double>(model.padded_vocab() + model.seq_len);
  examples::check_memory(
      "--layers " + std::to_string(model.num_layers) + " --dim " + std::to_string(model.dim) + " --vocab " +
          std::to_string(model.vocab_size),
      bytes_per_parameter(options, mesh.dp * mesh.sp) * parameters / (mesh.tp * mesh.pp) * std::max(1, options.ranks));
}

parallel::StrategyOptions strategy_options(const Options& options) {
  parallel::StrategyOptions strategy;
  strategy.bucket_bytes = std::llround(options.bucket_mb * (1 << 20));
  strategy.overlap = !options.no_overlap;
  strategy.deterministic = options.deterministic;
  strategy.zero = options.zero;
  strategy.hsdp = options.hsdp;
  strategy.prefetch = options.prefetch;
  strategy.grad_dtype = parse_dtype(options.grad_dtype);
  return strategy;
}

/// The nodes that the ranks will be on, where that is known before they start.
std::optional<comm::Topology> planned_topology(const Options& options, int world_size) {
  if (!options.topology.empty()) return comm::Topology::parse(options.topology, world_size);
  const bool one_host = options.ranks > 0 || read_environment().launcher_local_size.value_or(1) == world_size;
  return one_host ? std::optional(comm::Topology::one_node(world_size)) : std::nullopt;
}

/// The strategy's group at every place of the mesh, on nodes that are known.
void check_data_groups(const parallel::StrategyOptions& strategy, const parallel::MeshShape& mesh,
                       const comm::Topology& topology) {
  for (int stage = 0; stage < mesh.pp; ++stage) {
    for (int tp = 0; tp < mesh.tp; ++tp) {
      parallel::check_strategy(strategy, topology.group(parallel::data_group_ranks(mesh, {.pp = stage, .tp = tp})));
    }
  }
}

parallel::PipelineShape pipeline_shape(const Options& options, int64_t num_layers, int num_micro_batches) {
  parallel::PipelineShape pipeline;
  pipeline.kind = parallel::parse_pipeline_kind(options.pp_schedule);
  pipeline.num_stages = options.pp;
  pipeline.num_micro_batches = num_micro_batches;
  const bool interleaved = pipeline.kind == parallel::PipelineKind::Interleaved;
  pipeline.virtual_stages = options.virtual_stages > 0 ? options.virtual_stages : interleaved ? 2 : 1;
  parallel::check_pipeline_shape(pipeline);
  parallel::split_layers(num_layers, options.pp, pipeline.virtual_stages);
  return pipeline;
}

void check_axes(const Options& options, const parallel::MeshShape& mesh, const models::GptConfig& model) {
  parallel::MeshLoad load;
  load.num_layers = model.num_layers;
  load.num_heads = model.num_heads;
  load.vocab_size = model.vocab_size;
  load.seq_len = model.seq_len;
  load.global_batch = options.global_batch;
  load.sequence_parallel = options.sequence_parallel == "megatron";
  parallel::check_mesh(mesh, load);
}

models::GptConfig model_config(const Options& options) {
  models::GptConfig model = models::preset(options.model);
  model.num_layers = options.layers.value_or(model.num_layers);
  model.num_heads = options.heads.value_or(model.num_heads);
  model.dim = options.dim.value_or(model.dim);
  model.seq_len = options.seq_len.value_or(model.seq_len);
  model.vocab_size = options.vocab.value_or(model.vocab_size);
  model.vocab_multiple = std::lcm(model.vocab_multiple, int64_t{options.tp});
  model.dropout = options.dropout;
  model.recompute = options.recompute;
  model.seed = options.seed;
  model.validate();
  return model;
}

/// Rows of a micro-batch where the user leaves them open: those of a rank, in as many micro-batches as there are stages
/// or, where that does not divide, in the next number that does.
int64_t rows_of_micro_batch(int64_t rows_per_rank, int num_stages) {
  int64_t num_micro_batches = std::min<int64_t>(num_stages, std::max<int64_t>(rows_per_rank, 1));
  while (rows_per_rank % num_micro_batches != 0) ++num_micro_batches;
  return std::max<int64_t>(rows_per_rank / num_micro_batches, 1);
}

train::TrainerOptions trainer_options(const Options& options, const parallel::MeshShape& mesh, int64_t seq_len) {
  train::TrainerOptions trainer;
  trainer.seq_len = seq_len;
  trainer.sequence_parts = mesh.sp;
  trainer.share.global_batch = options.global_batch;
  trainer.share.dp_size = mesh.dp;
  trainer.share.micro_batch = options.micro_batch;
  if (options.micro_batch == 0) {
    trainer.share.micro_batch = rows_of_micro_batch(trainer.share.rows_per_rank(), mesh.pp);
  }
  train::check_batch_share(trainer.share);
  trainer.lr.peak = options.lr;
  trainer.lr.floor = options.min_lr.value_or(options.lr / 10);
  if (trainer.lr.floor > trainer.lr.peak) {
    std::ostringstream text;
    text << "--min-lr " << trainer.lr.floor << ": allowed values are 0 to --lr, that is " << trainer.lr.peak;
    throw ConfigError(text.str());
  }
  trainer.lr.warmup_steps = options.warmup;
  trainer.lr.num_steps = options.steps;
  trainer.clip_norm = options.clip;
  if (options.deterministic) trainer.squares = kernels::SquareSums::ByElement;
  trainer.check_replicas_every = options.check_replicas;
  return trainer;
}

int count_ranks_on_host(const Options& options) {
  if (options.ranks > 0) return options.ranks;
  const Environment environment = read_environment();
  return std::max(environment.launcher_local_size.value_or(environment.launcher_world_size.value_or(1)), 1);
}

/// Device and dtype, and how groups run there.
void choose_device(const Options& options, Plan& plan) {
  const DeviceChoice choice = parse_device_choice(options.device);
  const CudaProbe probe = choice == DeviceChoice::Cpu ? CudaProbe{} : probe_cuda();
  const bool is_for_host = options.comm == "mpi" || !options.emulate_links.empty();  // which auto leaves there
  const bool on_gpu = choice == DeviceChoice::Cuda || (probe.num_devices > 0 && !is_for_host);
  if (on_gpu) plan.device = sixfold::choose_device(choice, probe);
  plan.dtype = parse_dtype(options.dtype);
  const auto refuse = [](bool given, const std::string& what, const std::string& with, const std::string& allowed) {
    if (given) throw ConfigError(what + ": not together with " + with + " (allowed: " + allowed + ")");
  };
  const std::string on_cpu = "training on the CPU" + (probe.problem.empty() ? "" : ", since " + probe.problem);
  refuse(!on_gpu && plan.dtype != DType::F32, "--dtype " + options.dtype, on_cpu, "f32");
  refuse(!on_gpu && options.gpu_mode != "auto", "--gpu-mode " + options.gpu_mode, on_cpu, "auto");
  if (!on_gpu) return;
  refuse(options.comm == "mpi", "--comm mpi", "a GPU, since it is for host memory", "own, or --device cpu");
  refuse(!options.emulate_links.empty(), "--emulate-links", "a GPU, whose links are as they are", "--device cpu");
  plan.world.gpus = comm::make_cuda_provider(options.timeout);
  plan.world.gpu_mode = comm::parse_gpu_mode(options.gpu_mode);
  // Where our own collectives do not reach, NCCL may serve, which has no algorithms to choose from.
  const bool may = options.algorithm == "auto" && !options.deterministic;
  if (may && comm::planned_world_size(plan.world) > 1) plan.world.nccl = comm::make_cuda_nccl_setup();
}

}  // namespace

Plan make_plan(const Options& options, int num_ranks) {
  Plan plan;
  plan.options = options;
  check_given(options);
  plan.world = world_options(options);
  choose_device(options, plan);
  const int world_size = num_ranks > 0 ? num_ranks : comm::planned_world_size(plan.world);
  plan.mesh =
      parallel::resolve_mesh({.pp = options.pp, .dp = options.dp, .sp = options.sp, .tp = options.tp}, world_size);
  plan.model = model_config(options);
  // A GPU says itself what it cannot hold (DeviceArena).
  if (plan.device.type == DeviceType::Cpu) check_model_memory(options, plan.mesh, plan.model);
  check_axes(options, plan.mesh, plan.model);
  plan.tp.sequence_parallel = options.sequence_parallel == "megatron";
  plan.tp.overlap = !options.no_overlap;
  plan.strategy = strategy_options(options);
  plan.strategy.param_dtype = plan.dtype;
  if (const auto topology = planned_topology(options, world_size)) {
    check_data_groups(plan.strategy, plan.mesh, *topology);
  }
  plan.optimizer.kind = train::parse_optimizer(options.optimizer);
  plan.optimizer.weight_decay = options.weight_decay;
  plan.trainer = trainer_options(options, plan.mesh, plan.model.seq_len);
  plan.pipeline = pipeline_shape(options, plan.model.num_layers, plan.trainer.share.num_micro_batches());
  plan.trainer.pp_schedule = plan.pipeline.kind;
  plan.trainer.virtual_stages = plan.pipeline.virtual_stages;
  plan.records = {options.comm_log, options.trace};
  plan.world.comm_log_bytes = plan.records.any() ? comm::kCommLogBytes : 0;
  plan.world.time_waits = true;
  plan.num_cores = usable_cores();
  plan.ranks_on_host = count_ranks_on_host(options);
  const int threads_by_default =
      read_environment().omp_num_threads.value_or(std::max(plan.num_cores / plan.ranks_on_host, 1));
  plan.num_threads = options.threads > 0 ? options.threads : threads_by_default;
  plan.world.num_compute_threads = plan.num_threads;
  constexpr int kMaxThreads = 4096;
  if (plan.num_threads > kMaxThreads) {
    throw ConfigError("--threads " + std::to_string(plan.num_threads) + ": allowed values are 0 to " +
                      std::to_string(kMaxThreads));
  }
  examples::check_outputs(
      {{"--log", options.log}, {"--comm-log", options.comm_log}, {"--trace", options.trace}, {"--dump", options.dump}},
      {{"--data", options.data}, {"--val-data", options.val_data}});
  return plan;
}

}  // namespace sixfold::train_gpt
