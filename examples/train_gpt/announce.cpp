#include "examples/train_gpt/announce.h"

#include <iostream>

#include "runtime/comm/observe/profile_file.h"
#include "runtime/core/log.h"
#include "runtime/parallel/pipeline_check.h"

namespace sixfold::train_gpt {

namespace {

void announce_pipeline(const Plan& plan) {
  const parallel::PipelineShape& pipeline = plan.pipeline;
  if (plan.options.show_pipeline) {
    std::cout << parallel::draw_schedule(pipeline, parallel::pipeline_schedule(pipeline)) << std::endl;
  }
  if (plan.strategy.zero >= 2 && pipeline.num_stages > 1 && pipeline.num_micro_batches > 1 && plan.mesh.dp > 1) {
    const std::string m = std::to_string(pipeline.num_micro_batches);
    log_warn("--zero " + std::to_string(plan.strategy.zero) + " with --pp " + std::to_string(pipeline.num_stages) +
             ": each of the " + m + " micro-batches of a step " +
             (plan.strategy.zero == 3 ? "gathers the parameters twice and reduces the gradients, "
                                      : "reduces the gradients, ") +
             m + " times the bytes of one; --zero 1 communicates once a step");
  }
}

void warn_of_placement(const Plan& plan, const comm::Topology& topology) {
  const comm::WorldOptions& world = plan.world;
  const comm::Profile profile = world.emulate_links.empty()
                                    ? comm::load_profile(world.profile.empty() ? "host" : world.profile)
                                    : comm::emulated_profile(world);
  const int64_t elements = plan.trainer.share.micro_batch * plan.model.seq_len / plan.mesh.sp * plan.model.dim;
  const std::string warning = parallel::tp_crossing_warning(
      plan.mesh, topology, static_cast<size_t>(elements) * dtype_bytes(plan.dtype), profile);
  if (!warning.empty()) log_warn(warning);
}

}  // namespace

void announce(const Plan& plan, const comm::Topology& topology) {
  announce_pipeline(plan);
  warn_of_placement(plan, topology);
}

}  // namespace sixfold::train_gpt
