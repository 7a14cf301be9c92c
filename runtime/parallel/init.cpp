#include "runtime/parallel/init.h"

#include <algorithm>

#include "runtime/core/rng.h"

namespace sixfold::parallel {

namespace {

/// A 64-bit key of (seed, name): Philox chained over the name's length and its bytes, eight at a time.
uint64_t key_of(uint64_t seed, std::string_view name) {
  uint64_t key = philox_hash(seed, name.size());
  for (size_t begin = 0; begin < name.size(); begin += 8) {
    uint64_t word = 0;
    for (size_t i = begin; i < std::min(begin + 8, name.size()); ++i)
      word |= uint64_t{static_cast<uint8_t>(name[i])} << (8 * (i - begin));
    key = philox_hash(key, word);
  }
  return key;
}

/// The values of parameter.value, which is of the local shape.
void fill(const Parameter& parameter, uint64_t seed, const Tensor& floats) {
  float* data = floats.data<float>();
  if (parameter.init.std == 0) {
    std::fill(data, data + floats.numel(), parameter.init.constant);
    return;
  }
  NormalSequence normal(seed, parameter.name);
  const int64_t num_real = numel(parameter.file_shape());  // padding comes last
  for (int64_t i = 0; i < floats.numel(); ++i) {
    const int64_t global = parameter.shard.global_index(parameter.full_shape, i);
    data[i] = global < num_real ? static_cast<float>(double{parameter.init.std} * normal.at(global)) : 0.0f;
  }
}

}  // namespace

NormalSequence::NormalSequence(uint64_t seed, std::string_view parameter_name) : key_(key_of(seed, parameter_name)) {}

double NormalSequence::at(int64_t index) {
  const int64_t block = index / 4;
  if (block != block_) {
    const uint64_t counter = static_cast<uint64_t>(block);
    const PhiloxBlock bits = philox({static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32)},
                                    {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0});
    const auto first = normal_pair(bits[0], bits[1]);
    const auto second = normal_pair(bits[2], bits[3]);
    std::copy(first.begin(), first.end(), values_);
    std::copy(second.begin(), second.end(), values_ + 2);
    block_ = block;
  }
  return values_[index % 4];
}

void initialize(const kernels::Place& place, Parameter& parameter, uint64_t seed) {
  const Tensor& value = parameter.value;
  SIXFOLD_CHECK(value.shape() == parameter.local_shape(), parameter.name + ": " + to_string(value.shape()) +
                                                              " in place of " + to_string(parameter.local_shape()));
  const Tensor floats = Tensor::of_host(value.shape(), DType::F32);
  fill(parameter, seed, floats);
  kernels::floats_from_host(place, floats, value);
}

}  // namespace sixfold::parallel
