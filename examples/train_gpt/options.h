// The options of train_gpt, as the user gives them.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

namespace sixfold::train_gpt {

/// Defaults are what --help shows.
struct Options {
  // data
  std::string data = "/usr/include/eigen3";  // real text that is there after installing the build dependencies
  std::string data_format = "auto";
  double val_fraction = 0.05;
  std::string val_data;
  bool no_shuffle = false;
  // model
  std::string model = "tiny";
  std::optional<int64_t> layers, heads, dim, seq_len, vocab;  // default: those of `model`
  float dropout = 0;
  uint64_t seed = 1;
  // training
  int64_t steps = 700;
  int64_t global_batch = 12;
  int64_t micro_batch = 0;
  std::string optimizer = "adamw";
  float lr = 3e-3f;
  std::optional<float> min_lr;  // default: a tenth of lr
  int64_t warmup = 50;
  float weight_decay = 0.1f;
  double clip = 1;
  bool recompute = false;
  // parallel
  std::string device = "auto";
  std::string dtype = "f32";
  std::string gpu_mode = "auto";
  int ranks = 0;
  int dp = 0;
  int pp = 1;
  std::string pp_schedule = "1f1b";
  int virtual_stages = 0;
  bool show_pipeline = false;
  int tp = 1;
  std::string sequence_parallel = "none";
  int sp = 1;
  int zero = 0;
  bool hsdp = false;
  int prefetch = 1;
  std::string grad_dtype = "f32";
  double bucket_mb = 1;
  bool no_overlap = false;
  std::string comm = "own";
  std::string algorithm = "auto";
  std::string topology, emulate_links, profile, tune_file;
  bool debug = false;
  bool deterministic = false;
  int threads = 0;
  double timeout = 120;
  bool force_mpi_links = false;
  std::string progress_thread = "auto";
  int64_t check_replicas = 0;
  std::string flight_recorder;
  // output
  int64_t eval_every = 0;
  int64_t eval_windows = 64;
  std::optional<int64_t> sample;  // default: 200 where tokens are bytes, else none
  std::string log;
  std::string dump;
  std::string comm_log, trace;
  bool quiet = false;
  bool no_gemm_rate = false;

  std::set<std::string> given;  // the flags that the user has given a value, "--zero"
};

/// Options of the command line and of the file that --config names (the command line wins). Empty after --help, whose
/// text goes to stdout where `speaks` is set. Throws ConfigError for an unknown flag and for a value that no run could
/// have; whether the values fit together is plan.h's matter.
std::optional<Options> parse_options(int argc, const char* const* argv, bool speaks);

}  // namespace sixfold::train_gpt
