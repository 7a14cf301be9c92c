#include "runtime/parallel/check_replicas.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>

#include "runtime/parallel/ddp.h"
#include "tests/toy_model.h"

namespace sixfold::parallel {
namespace {

TEST(CheckReplicas, NamesStepRanksAndParameter) {
  test::run_ranks(4, [](comm::World& world) {
    ToyModel model(world.rank());
    Ddp ddp(model.units, world.memory(), world.group(), {1024, true, false});
    ddp.load_values([](Parameter& p) { std::fill_n(p.value.data<float>(), p.value.numel(), 1.0f); });
    check_replicas(model.units, ddp, world.group(), *model.memory, 6);

    // The lowest bit of one element on rank 1, and of another on rank 3.
    const std::vector<Parameter*> parameters = parameters_of(model.units);
    if (world.rank() == 1) parameters[2]->value.data<float>()[32] = std::nextafter(1.0f, 2.0f);
    if (world.rank() == 3) parameters[4]->value.data<float>()[0] = std::nextafter(1.0f, 0.0f);
    const std::string message = message_of([&] { check_replicas(model.units, ddp, world.group(), *model.memory, 7); });
    for (const char* part : {"step 7", "rank 1, 3 differ", "of rank 0", "h0.w"}) {
      EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
    }
  });
}

TEST(HashWeights, IsOfAllElementsInTheOrderOfNames) {
  for (int64_t bucket_bytes : kBucketBytes) {
    test::run_ranks(2, [&](comm::World& world) {
      ToyModel model(world.rank());
      Ddp ddp(model.units, world.memory(), world.group(), {bucket_bytes, true, false});
      ddp.load_values([](Parameter& p) {
        for (int64_t i = 0; i < p.value.numel(); ++i) p.value.data<float>()[i] = wild(0, 0, p, i);
      });
      std::vector<float> in_name_order;
      // embed.wpe, embed.wte, h0.b, h0.empty, h0.w, h1.b, h1.w, head.gain
      for (size_t index : {1, 0, 4, 3, 2, 6, 5, 7}) {
        const Tensor& value = parameters_of(model.units)[index]->value;
        in_name_order.insert(in_name_order.end(), value.data<float>(), value.data<float>() + value.numel());
      }
      EXPECT_EQ(hash_weights(model.units, ddp, {}, *model.memory), XXH3_64bits(in_name_order.data(), kToyElements * 4));
    });
  }
}

}  // namespace
}  // namespace sixfold::parallel
