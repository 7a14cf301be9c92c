#include "examples/train_gpt/options.h"

#include "examples/common/option_group.h"
#include "examples/train_gpt/option_groups.h"
#include "models/config.h"
#include "runtime/comm/schedule/schedule.h"
#include "runtime/core/error.h"

namespace sixfold::train_gpt {

namespace {

using Group = examples::OptionGroup;

constexpr float kMaxFloat = std::numeric_limits<float>::max();
constexpr double kMaxMegabytes = 1e6;
constexpr double kMaxSeconds = 1e6;
constexpr const char* kParallel = "Ranks and communication";

}  // namespace

void add_data(CLI::App& app, Options& o) {
  Group group(app, "Data");
  group.path(
      "--data", o.data,
      "What to train on: text, that is a file or a folder (all text files in and below it); or a file of tokens");
  group.choice(
      "--data-format", o.data_format, {"auto", "text", "llmc", "u16"},
      "What --data holds: bytes of text, or 16-bit little-endian tokens with llm.c's header or without one; auto: "
      "tokens in a file named *.bin, else text");
  group.flag("--no-shuffle", o.no_shuffle, "Take the text in its order");
}

void add_model(CLI::App& app, Options& o) {
  Group group(app, "Model (GPT-2)");
  group.choice("--model", o.model, models::preset_names(), "Sizes, where none of the following says otherwise");
  const std::string of_model = " (default: that of --model)";
  group.whole_without_default<int64_t>("--layers", o.layers, 1, "Blocks" + of_model);
  group.whole_without_default<int64_t>("--heads", o.heads, 1, "Attention heads; must divide --dim" + of_model);
  group.whole_without_default<int64_t>("--dim", o.dim, 1, "Channels" + of_model);
  group.whole_without_default<int64_t>("--seq-len", o.seq_len, 1, "Tokens of a row" + of_model);
  group.whole_without_default<int64_t>("--vocab", o.vocab, 1, "Tokens there are; a byte is one of 256" + of_model);
  group.real("--dropout", o.dropout, 0.0f, std::nextafter(1.0f, 0.0f), "0 <= dropout < 1", "Dropout probability");
  group.whole<uint64_t>("--seed", o.seed, 0, "Keys initial weights, order of the data, dropout and the sample",
                        std::numeric_limits<uint64_t>::max());
}

void add_training(CLI::App& app, Options& o) {
  Group group(app, "Training");
  group.whole<int64_t>("--steps", o.steps, 1, "Optimizer steps");
  group.whole<int64_t>("--global-batch", o.global_batch, 1, "Rows of one step, of all ranks together");
  group.whole<int64_t>(
      "--micro-batch", o.micro_batch, 0,
      "Rows that a rank takes at a time, gradients are accumulated; 0: all of its rows, with --pp so many that "
      "there are as many micro-batches as stages (or the next number that divides the rows)");
  group.choice("--optimizer", o.optimizer, {"adamw", "sgd"}, "Optimizer");
  group.real("--lr", o.lr, 0.0f, kMaxFloat, "numbers from 0 on", "Highest learning rate");
  group.real_without_default("--min-lr", o.min_lr, 0.0f, kMaxFloat, "numbers from 0 on",
                             "Learning rate of the last step (default: --lr / 10)");
  group.whole<int64_t>("--warmup", o.warmup, 0, "Steps of linear warm-up; half a cosine down to --min-lr follows");
  group.real("--weight-decay", o.weight_decay, 0.0f, kMaxFloat, "numbers from 0 on", "Decay of matrices");
  group.real("--clip", o.clip, 0.0, 1e30, "numbers from 0 on", "Gradients are clipped to this norm; 0: never");
  group.flag("--recompute", o.recompute,
             "Keep only the input of each block, and run its forward again before backward");
}

void add_world(CLI::App& app, Options& o) {
  Group group(app, kParallel);
  group.choice("--device", o.device, {"auto", "cpu", "cuda"}, "Where to train; auto: on a GPU where there is one");
  group.choice("--dtype", o.dtype, {"f32", "bf16"},
               "Activations and parameters; bf16, on a GPU, with f32 master weights, gradients and sums");
  group.choice("--gpu-mode", o.gpu_mode, {"auto", "shared", "peer", "stepped", "staged"},
               "How collectives run on GPUs; auto: by where the ranks are");
  group.whole("--ranks", o.ranks, 0, "Ranks, as threads of this process; 0: those of mpirun, else one");
  group.whole("--prefetch", o.prefetch, 0, "Units whose parameters are gathered ahead of time (--zero 3)");
  group.choice("--grad-dtype", o.grad_dtype, {"f32", "bf16"}, "What gradients travel as");
  group.whole("--threads", o.threads, 0, "Threads of a rank's kernels; 0: OMP_NUM_THREADS, else cores / ranks");
  group.choice("--comm", o.comm, {"own", "mpi"}, "Collectives: our own, or MPI's for comparison");
  std::vector<std::string> algorithms = {"auto"};
  for (comm::Algorithm algorithm : comm::kAlgorithms) {
    if (comm::find_builder(comm::Primitive::AllReduce, algorithm) == nullptr) continue;
    algorithms.emplace_back(comm::algorithm_name(algorithm));
  }
  group.choice("--algorithm", o.algorithm, algorithms,
               "Algorithm of our own collectives, for the primitives that have it; auto: by size and group");
  group.text("--topology", o.topology, "NODESxRANKS", "Declare the ranks to be on so many nodes (default: as found)");
  group.flag("--force-mpi-links", o.force_mpi_links, "MPI carries what goes between the nodes of --topology");
  group.text("--emulate-links", o.emulate_links, "intra=GB/s,inter=GB/s,scale=X",
             "Pace links inside and between nodes to these rates x scale (default: as fast as they are)");
  group.flag("--debug", o.debug, "Say what topology, rings and trees there are, what is chosen and why");
  group.real("--bucket-mb", o.bucket_mb, 0.0, kMaxMegabytes, "0 to 1000000",
             "MiB of gradients that travel together; 0: each parameter alone (--zero 0, 1, 2; a unit's with 3)");
  group.choice("--progress-thread", o.progress_thread, {"auto", "on", "off"},
               "A thread of each rank moves its messages while it computes; auto: where there are two cores for each "
               "thread that computes");
  group.flag("--deterministic", o.deterministic,
             "The same bits for every --zero and bucket size, with or without overlap, threads or processes");
  group.real("--timeout", o.timeout, 0.001, kMaxSeconds, "0.001 to 1000000",
             "Seconds without any progress after which a wait is an error");
  group.text(
      "--flight-recorder", o.flight_recorder, "DIR",
      "Where a run that fails writes flight-recorder.json, the last operations of every rank (default: nowhere)");
}

namespace {

void add_strategy(CLI::App& app, Options& o) {
  Group group(app, kParallel);
  group.whole("--dp", o.dp, 0, "Data-parallel ranks; 0: as many as the other axes leave");
  group.whole("--pp", o.pp, 1, "Pipeline stages, which share out the layers; --micro-batch says what they pass on");
  group.choice("--pp-schedule", o.pp_schedule, {"gpipe", "1f1b", "interleaved"},
               "Order of forwards and backwards on a stage (--pp)");
  group.whole("--virtual-stages", o.virtual_stages, 0,
              "Parts of the model on each stage (--pp-schedule interleaved); 0: 2 with interleaved, else 1");
  group.flag("--show-pipeline", o.show_pipeline, "Draw the schedule of all stages before the first step");
  group.whole("--tp", o.tp, 1, "Ranks that share out each layer (Megatron's tensor parallelism)");
  group.choice("--sequence-parallel", o.sequence_parallel, {"none", "megatron"},
               "Between layers, --tp ranks share out positions, too");
  group.whole("--sp", o.sp, 1, "Ranks that share out the positions of each row (Ulysses)");
  group.whole("--zero", o.zero, 0,
              "What ranks share out: 1 optimizer state; 2 gradients, too; 3 parameters, too; 0: nothing", 3);
  group.flag("--hsdp", o.hsdp, "Share out within each node, with a copy a node (--zero 2, 3)");
  group.flag("--no-overlap", o.no_overlap, "Communicate instead of computing, not meanwhile");
  group.whole<int64_t>("--check-replicas", o.check_replicas, 0,
                       "Compare the ranks' weights every so many steps; 0: never");
  group.text("--profile", o.profile, "NAME|FILE", "Hardware that algorithms are chosen for (default: this host)");
  group.path("--tune-file", o.tune_file, "Measured rows that algorithms are chosen by (default: none)");
}

void add_validation(CLI::App& app, Options& o) {
  Group group(app, "Data");
  group.real("--val-fraction", o.val_fraction, 0.0, 0.9, "0 (nothing is held out) to 0.9",
             "Share of the text, at its end, held out for the validation loss");
  group.text("--val-data", o.val_data, "FILE",
             "Take the validation loss over this, like --data, and hold nothing out (default: none)");
}

void add_output(CLI::App& app, Options& o) {
  Group group(app, "Output");
  group.whole<int64_t>("--eval-every", o.eval_every, 0, "Steps between validation losses; 0: only at the end");
  group.whole<int64_t>("--eval-windows", o.eval_windows, 1, "Held-out rows that a validation loss is taken over");
  group.whole_without_default<int64_t>(
      "--sample", o.sample, 0,
      "Tokens to generate at the end, printed as text or, where --data has no bytes, as numbers (default: 200 bytes)");
  group.path("--log", o.log, "Write one JSON object a step and a summary (default: none)");
  group.path("--comm-log", o.comm_log, "Write one JSON object for every operation of every rank (default: none)");
  group.path("--trace", o.trace,
             "Write a timeline of all ranks, compute and communication, that ui.perfetto.dev opens (default: none)");
  group.path("--dump", o.dump, "Write gradients of step 1 and final weights as safetensors (default: none)");
  group.flag("--quiet", o.quiet, "Print nothing but the validation loss");
  group.flag("--no-gemm-rate", o.no_gemm_rate,
             "Do not measure the rate of matrix products, half a second in all, of which speed is a share");
}

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv, bool speaks) {
  Options options;
  CLI::App app("Trains a GPT on the bytes of a text, or on tokens, on one rank or many.");
  app.get_formatter()->column_width(32);
  app.get_help_ptr()->group("Help");
  add_data(app, options);
  add_validation(app, options);
  add_model(app, options);
  add_training(app, options);
  add_world(app, options);
  add_strategy(app, options);
  add_output(app, options);
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.set_config("--config", "", "Read options from this file: lines such as steps = 300")->group("Help");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    if (speaks) app.exit(help);
    return std::nullopt;
  } catch (const CLI::FileError& error) {
    throw ConfigError("--config: " + std::string(error.what()) + "; allowed is a file of lines such as steps = 300");
  } catch (const CLI::ParseError& error) {
    throw ConfigError(std::string(error.what()) + " (--help lists the options)");
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() > 0) options.given.insert(option->get_name());
  }
  return options;
}

}  // namespace sixfold::train_gpt
