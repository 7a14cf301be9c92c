// Text for error messages: which values would have been allowed.
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace sixfold {

/// "1, 2, 3, 4, 6, 12" for 12. n >= 1; takes sqrt(n) steps.
inline std::string divisors_of(int64_t n) {
  std::set<int64_t> divisors;
  for (int64_t d = 1; d <= n / d; ++d) {
    if (n % d == 0) divisors.insert({d, n / d});
  }
  std::string list;
  for (int64_t d : divisors) list += (list.empty() ? "" : ", ") + std::to_string(d);
  return list;
}

}  // namespace sixfold
