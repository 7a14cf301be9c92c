// StepLog: a run as JSON lines, for programs. One object a step, one object at the end.
//
//   {"step","loss","grad_norm","lr","tokens_per_s","step_ms","comm_ms","exposed_comm_ms","exposed_wait_ms"}
//   {"summary":
//   {"strategy","val_loss","weights_hash","state_hash","steps","skipped_steps","ranks","threads","parameters",
//                "tokens_per_s","step_ms","mean_step_ms","median_step_ms","gemm_gflops","mfu","evaluations":[{"step","val_loss"}],
//                "comm":[{"tag","primitive","algorithm","backend","group_size","calls_per_step","bytes_per_step",
//                         "sent_bytes_per_step","predicted_sent_bytes_per_step","ms_per_step","exposed_ms_per_step",
//                         "wait_ms_per_step","exposed_wait_ms_per_step"}],
//                "comm_outside":[{"tag","primitive","algorithm","backend","group_size","calls","bytes","sent_bytes",
//                                 "predicted_sent_bytes","ms","exposed_ms","wait_ms","exposed_wait_ms"}],
//                "primitives":[{"primitive","backend","calls_per_step","bytes_per_step","sent_intra_bytes_per_step",
//                               "sent_inter_bytes_per_step","ms_per_step","exposed_ms_per_step",
//                               "exposed_wait_ms_per_step","overlap"}],
//                "communication":{"ms_per_step","exposed_ms_per_step","exposed_wait_ms_per_step","overlap"},
//                "traffic":[{"tag","sent_bytes_per_step","predicted_bytes_per_step","padding_bytes_per_step"}],
//                "memory":[{"category","peak_bytes","predicted_bytes"}],
//                "pipeline":{"schedule","stages","virtual_stages","micro_batches","bubble","bubble_formula"},
//                "resident_bytes"}}
//
// What is per step is a mean over all steps, the first included, and has only what was issued in steps and what of
// them was exposed; "mean_step_ms" is of the same steps, "step_ms" leaves out the first. "comm_outside" has sums over
// what was issued or exposed outside: start-up and validation. So exposed_ms_per_step of all tags together is at most
// mean_step_ms. A step's "comm_ms" is of operations of steps that ended in it.
//
// In "communication", time in which several operations were under way counts once, in the lists for each of them;
// overlap is the share of it that was not exposed; wait is for ranks that came late (observe/comm_log.h).
// Bytes and milliseconds are those of the rank that writes (rank 0). null: not finite, not known (what MPI and NCCL
// send and wait for; on GPUs late ranks and the bubble), not had (an algorithm, by messages, MPI and NCCL), or
// (pipeline) one stage. gemm_gflops is what matrix products reached on all ranks together, measured in the same run,
// and mfu the share of it that training reached: tokens_per_s times the FLOP of a token (Gpt::flops_per_token), which
// are those of the model without padding; both are 0 with --no-gemm-rate. Losses are in nats per token, of which a text
// has one a byte. The hash is a string of 16 hexadecimal digits, since JSON readers keep 53 bits of a number.
#pragma once

#include <filesystem>
#include <fstream>

#include "runtime/train/report.h"
#include "runtime/train/trainer.h"

namespace sixfold::train {

class StepLog {
 public:
  /// Creates the file, or empties it. Throws ConfigError when that fails.
  explicit StepLog(const std::filesystem::path& path);
  /// Each line is on disk when the call returns (flushed, not synced), so that a run can be followed.
  void step(const StepResult& result);
  void summary(const RunSummary& summary);

 private:
  void line(const std::string& text);

  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace sixfold::train
