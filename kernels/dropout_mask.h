// The mask of a dropout site (DropoutSite of kernels.h), on either device: the random bits of channel c at a position
// of a sample are word c % 4 of the Philox block with counter (sample low, sample high, position, c / 4) under a key
// hashed from (seed, step, layer, site).
#pragma once

#include "kernels/kernels.h"
#include "runtime/core/rng.h"

namespace sixfold::kernels {

struct DropoutMask {
  float probability, kept;  // kept: what a channel that stays is multiplied by
  PhiloxKey key;

  /// Throws CheckError for a probability that leaves nothing.
  explicit DropoutMask(const DropoutSite& site)
      : probability(site.probability), kept(1.0f / (1.0f - site.probability)) {
    SIXFOLD_CHECK(probability >= 0 && probability < 1, "dropout probability must be in [0, 1)");
    const uint64_t of_step = philox_hash(site.seed, static_cast<uint64_t>(site.step));
    const uint64_t hash = philox_hash(
        of_step, (static_cast<uint64_t>(static_cast<uint32_t>(site.layer)) << 32) | static_cast<uint32_t>(site.site));
    key = {static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)};
  }

  /// factor[i] = `kept` where global channel 4 * block + i of the position is kept, else 0.
  SIXFOLD_HD void draw(int64_t sample, int64_t position, int64_t block, float* factor) const {
    const PhiloxBlock bits = philox(key, {static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32),
                                          static_cast<uint32_t>(position), static_cast<uint32_t>(block)});
    for (size_t word = 0; word < 4; ++word) factor[word] = uniform_float(bits[word]) < probability ? 0.0f : kept;
  }
};

}  // namespace sixfold::kernels
