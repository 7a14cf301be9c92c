// Profile: what the links and the reductions of a machine cost. Pure data: read from a profile file (observe/
// profile_file.h) or given on the command line, used by the simulator, by the closed forms and by the choice of
// algorithms.
#pragma once

#include <string>
#include <string_view>

#include "runtime/comm/schedule/topology.h"

namespace sixfold::comm {

/// A message of b bytes takes alpha_s + b / bytes_per_s when nothing is in its way. Rates are per direction.
struct LinkRate {
  double alpha_s = 0;
  double bytes_per_s = 0;
};

struct Profile {
  std::string name;
  LinkRate intra, inter;
  double reduce_bytes_per_s = 0;  // of one rank: bytes of one operand that it adds to another in a second
  double copy_bytes_per_s = 0;    // of one rank: bytes that a step without a reduction moves; 0: copies cost nothing
  double matmul_flops = 0;        // of one rank: FLOP/s of matrix products at best; 0: not known
  int num_rails = 1;              // network cards a node; 1: all its ranks share one

  const LinkRate& link(LinkClass link_class) const { return link_class == LinkClass::Intra ? intra : inter; }
};

/// "intra=300,inter=25,scale=0.001": `base` with the rates of its links replaced by these, in GB/s (1e9) per direction
/// times scale. Each key at most once, in any order; intra and inter are needed, scale is 1 where absent. Latencies and
/// the reduction rate stay those of `base`, because pacing changes neither. Throws ConfigError that names
/// --emulate-links and the expected form.
Profile parse_emulated_links(std::string_view text, const Profile& base);

/// CheckError unless all numbers are finite, latencies at least 0, rates above 0 and num_rails at least 1.
void check_profile(const Profile& profile);

}  // namespace sixfold::comm
