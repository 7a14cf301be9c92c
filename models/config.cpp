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

struct Preset {
  const char* name;
  GptConfig config;
};

constexpr Preset kPresets[] = {
    {"tiny", {4, 4, 128, 128, 256, 1}},
    {"small", {6, 6, 384, 256, 256, 1}},
    {"gpt2-124m", {12, 12, 768, 1024, 50257, 128}},
    {"gpt2-350m", {24, 16, 1024, 1024, 50257, 128}},
    {"gpt2-774m", {36, 20, 1280, 1024, 50257, 128}},
    {"gpt2-1.5b", {48, 25, 1600, 1024, 50257, 128}},
};

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

GptConfig preset(std::string_view name) {
  std::string names;
  for (const Preset& p : kPresets) {
    if (name == p.name) return p.config;
    names += (names.empty() ? "" : ", ") + std::string(p.name);
  }
  throw ConfigError("--model " + std::string(name) + ": allowed values are " + names);
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.emplace_back(p.name);
  return names;
}

}  // namespace sixfold::models
