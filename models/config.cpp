#include "models/config.h"

#include <sstream>
#include <string>

#include "runtime/core/divisors.h"
#include "runtime/core/error.h"

namespace sixfold::models {

namespace {

void require_positive(const char* flag, int64_t value) {
  if (value >= 1) return;
  throw ConfigError(std::string(flag) + " " + std::to_string(value) + ": allowed values are whole numbers from 1 on");
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
