#include "runtime/comm/observe/profile_file.h"

#include "runtime/comm/observe/builtin_profiles.h"
#include "runtime/comm/observe/strict_json.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

constexpr double kMicro = 1e-6, kGiga = 1e9, kTera = 1e12;
constexpr int64_t kMaxRails = 1024;

LinkRate read_link(ObjectReader reader) {
  LinkRate link;
  link.alpha_s = reader.not_negative("alpha_us") * kMicro;
  link.bytes_per_s = reader.positive("gb_per_s") * kGiga;
  reader.comment("source");
  reader.expect_nothing_else();
  return link;
}

bool is_file(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".json");
}

}  // namespace

std::vector<std::string> builtin_profile_names() {
  std::vector<std::string> names;
  for (const BuiltinProfile& profile : builtin_profiles()) names.emplace_back(profile.name);
  return names;
}

Profile parse_profile(std::string_view text, const std::string& where) {
  const nlohmann::json json = parse_json(text, where);
  ObjectReader reader(json, where);
  Profile profile;
  profile.name = reader.text("name");
  reader.comment("comment");
  profile.intra = read_link(reader.object("intra"));
  profile.inter = read_link(reader.object("inter"));
  const int64_t num_rails = reader.whole("num_rails", 1);
  if (num_rails > kMaxRails) {
    reader.refuse("num_rails", "is " + std::to_string(num_rails) + "; at most " + std::to_string(kMaxRails));
  }
  profile.num_rails = static_cast<int>(num_rails);
  profile.reduce_bytes_per_s = reader.positive("reduce_gb_per_s") * kGiga;
  reader.comment("reduce_source");
  if (reader.has("copy_gb_per_s")) profile.copy_bytes_per_s = reader.positive("copy_gb_per_s") * kGiga;
  if (reader.has("matmul_tflops")) profile.matmul_flops = reader.positive("matmul_tflops") * kTera;
  reader.comment("matmul_source");
  reader.expect_nothing_else();
  return profile;
}

Profile load_profile(const std::string& name_or_file) {
  const std::string where = "--profile " + name_or_file;
  if (is_file(name_or_file)) return parse_profile(read_text_file(name_or_file, where), where);
  std::string allowed;
  for (const BuiltinProfile& profile : builtin_profiles()) {
    if (profile.name == name_or_file) return parse_profile(profile.text, where);
    allowed += std::string(profile.name) + ", ";
  }
  throw ConfigError(where + ": no such profile; allowed are " + allowed + "or a file (FILE.json)");
}

}  // namespace sixfold::comm
