#include "examples/train_gpt/predictions.h"

#include "models/predict.h"

namespace sixfold::train_gpt {

namespace {

models::GptCut gpt_cut(const Plan& plan, const parallel::Mesh& mesh) {
  models::GptCut cut;
  cut.tp = plan.mesh.tp;
  cut.sequence_parallel = plan.tp.sequence_parallel;
  cut.overlap = plan.tp.overlap;
  cut.sp = plan.mesh.sp;
  cut.pipeline = plan.pipeline;
  cut.stage = mesh.coordinates().pp;
  cut.micro_batch = plan.trainer.share.micro_batch;
  cut.num_threads = plan.num_threads;
  cut.dtype = plan.dtype;
  cut.device = plan.device.type;
  return cut;
}

}  // namespace

Predictions predict(const Plan& plan, parallel::Mesh& mesh, const parallel::StageUnits& stage) {
  const models::GptCut cut = gpt_cut(plan, mesh);
  parallel::StrategyShape shape;
  shape.options = plan.strategy;
  shape.num_ranks = mesh.data_group().size();
  shape.num_nodes = mesh.data_group().topology().num_nodes();
  shape.num_micro_batches = plan.pipeline.num_micro_batches;
  const int rank = mesh.data_group().rank();

  Predictions predictions;
  std::vector<parallel::TagTraffic>& traffic = predictions.traffic;
  const auto append = [&](const std::vector<parallel::TagTraffic>& rows) {
    traffic.insert(traffic.end(), rows.begin(), rows.end());
  };
  append(parallel::predicted_traffic(stage, shape));
  append(models::predicted_traffic(plan.model, cut, mesh.tp_group(), mesh.sp_group()));
  if (plan.tp.sequence_parallel) {
    const auto count = static_cast<size_t>(parallel::partial_elements(stage, shape, rank));
    const double sent = mesh.tp_group().predicted_sent_elements(comm::Primitive::AllReduce, count, DType::F32);
    traffic.push_back({"tp.grads", sent * sizeof(float), 0});
  }
  const int sequence_parts = plan.mesh.sp * (plan.tp.sequence_parallel ? plan.mesh.tp : 1);
  const int64_t elements = plan.trainer.share.micro_batch * plan.model.seq_len / sequence_parts * plan.model.dim;
  append(parallel::predicted_pipeline_traffic(plan.pipeline, stage, elements, plan.dtype));

  predictions.memory = parallel::predicted_memory(stage, shape, plan.pipeline,
                                                  train::floats_per_element(plan.optimizer.kind, plan.dtype), rank);
  predictions.memory.activations = models::predicted_activations(plan.model, cut);
  return predictions;
}

}  // namespace sixfold::train_gpt
