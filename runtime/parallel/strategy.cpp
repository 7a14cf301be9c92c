#include "runtime/parallel/strategy.h"

#include "runtime/parallel/ddp.h"
#include "runtime/parallel/zero1.h"
#include "runtime/parallel/zero2.h"
#include "runtime/parallel/zero3.h"

namespace sixfold::parallel {

void check_strategy(const StrategyOptions& options, const comm::Topology& topology) {
  const std::string stage = "--zero " + std::to_string(options.zero);
  if (options.zero < 0 || options.zero > 3) throw ConfigError(stage + ": allowed values are 0, 1, 2, 3");
  if (options.prefetch < 0) {
    throw ConfigError("--prefetch " + std::to_string(options.prefetch) +
                      ": allowed values are whole numbers from 0 on");
  }
  if (options.grad_dtype != DType::F32 && options.grad_dtype != DType::BF16) {
    throw ConfigError("--grad-dtype " + std::string(dtype_name(options.grad_dtype)) + ": allowed values are f32, bf16");
  }
  if (!options.hsdp) return;
  if (options.zero < 2)
    throw ConfigError("--hsdp " + stage + ": shards gradients within a node; allowed are --zero 2, 3");
  if (topology.num_nodes() < 2 || topology.ranks_per_node() == 0) {
    throw ConfigError("--hsdp on " + topology.to_string() +
                      ": allowed are two nodes or more of as many ranks each (--topology NODESxRANKS declares them)");
  }
}

std::string strategy_name(const StrategyOptions& options) {
  const std::string name = options.zero == 0 ? "ddp" : "zero" + std::to_string(options.zero);
  return options.hsdp ? "hsdp (" + name + ")" : name;
}

std::unique_ptr<Strategy> make_strategy(const UnitList& units, const kernels::Place& place, comm::Communicator& group,
                                        const StrategyOptions& options) {
  check_strategy(options, group.topology());
  if (options.zero == 0) return std::make_unique<Ddp>(units, place, group, options);
  if (options.zero == 1) return std::make_unique<Zero1>(units, place, group, options);
  auto groups = std::make_unique<ShardGroups>(group, options.hsdp);
  if (options.zero == 2) return std::make_unique<Zero2>(units, place, std::move(groups), options);
  return std::make_unique<Zero3>(units, place, std::move(groups), options);
}

}  // namespace sixfold::parallel
