#include "models/config.h"

#include <set>
#include <sstream>
#include <string>

#include "runtime/core/error.h"

namespace sixfold::models {

namespace {

void require_positive(const char* flag, int64_t value) {
  if (value >= 1) return;
  throw ConfigError(std::string(flag) + " " + std::to_string(value) + ": allowed values are whole numbers from 1 on");
}

std::string divisors_of(int64_t n) {
  std::set<int64_t> divisors;
  for (int64_t d = 1; d <= n / d; ++d)
    if (n % d == 0) divisors.insert({d, n / d});
  std::string list;
  for (int64_t d : divisors) list += (list.empty() ? "" : ", ") + std::to_string(d);
  return list;
}

}  // namespace

void GptConfig::validate() const {
  require_positive("--layers", num_layers);
  require_positive("--heads", num_heads);
  require_positive("--dim", dim);
  require_positive("--seq-len", seq_len);
  require_positive("--vocab", vocab_size);
  require_positive("--vocab-multiple", vocab_multiple);
  if (dim % num_heads != 0)
    throw ConfigError("--heads " + std::to_string(num_heads) + " does not divide --dim " + std::to_string(dim) +
                      ": allowed head counts are " + divisors_of(dim));
  if (!(dropout >= 0 && dropout < 1)) {  // NaN, too
    std::ostringstream text;
    text << "--dropout " << dropout << ": allowed values are 0 <= dropout < 1";
    throw ConfigError(text.str());
  }
}

}  // namespace sixfold::models
