#include "runtime/comm/schedule/profile.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw ConfigError("--emulate-links " + std::string(text) + ": " + why +
                    "; expected intra=GBPS,inter=GBPS[,scale=FACTOR], each a number above 0, for example "
                    "intra=300,inter=25,scale=0.001");
}

double parse_positive(std::string_view text, std::string_view part, std::string_view number) {
  double value = 0;
  const char* end = number.data() + number.size();
  const auto parsed = std::from_chars(number.data(), end, value);
  const bool right = parsed.ec == std::errc() && parsed.ptr == end && std::isfinite(value) && value > 0;
  if (!right) refuse(text, "'" + std::string(part) + "' gives no number above 0");
  return value;
}

bool is_rate(double value) {
  return std::isfinite(value) && value > 0;
}

}  // namespace

Profile parse_emulated_links(std::string_view text, const Profile& base) {
  std::optional<double> intra, inter, scale;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) refuse(text, "'" + std::string(part) + "' is not of the form key=value");
    const std::string_view key = part.substr(0, equals);
    std::optional<double>* value = key == "intra"   ? &intra
                                   : key == "inter" ? &inter
                                   : key == "scale" ? &scale
                                                    : nullptr;
    if (value == nullptr) refuse(text, "unknown key '" + std::string(key) + "'");
    if (value->has_value()) refuse(text, "'" + std::string(key) + "' is given twice");
    *value = parse_positive(text, part, part.substr(equals + 1));
    begin = end + 1;
  }
  if (!intra || !inter) refuse(text, std::string(intra ? "inter" : "intra") + " is missing");
  constexpr double kGiga = 1e9;
  constexpr double kSlowest = 1e3,
                   kFastest = 1e15;  // bytes per second: slower ones never end, faster ones pace nothing
  Profile profile = base;
  profile.name = "emulated";
  profile.intra.bytes_per_s = *intra * kGiga * scale.value_or(1);
  profile.inter.bytes_per_s = *inter * kGiga * scale.value_or(1);
  for (const LinkRate& link : {profile.intra, profile.inter}) {
    if (link.bytes_per_s >= kSlowest && link.bytes_per_s <= kFastest) continue;
    refuse(text, "a rate times the scale is not between 1e-6 and 1e6 GB/s");
  }
  return profile;
}

void check_profile(const Profile& profile) {
  for (const LinkRate& link : {profile.intra, profile.inter}) {
    SIXFOLD_CHECK(std::isfinite(link.alpha_s) && link.alpha_s >= 0, "a latency in seconds, profile " + profile.name);
    SIXFOLD_CHECK(is_rate(link.bytes_per_s), "a link rate in bytes per second, profile " + profile.name);
  }
  SIXFOLD_CHECK(is_rate(profile.reduce_bytes_per_s), "a reduction rate in bytes per second, profile " + profile.name);
  SIXFOLD_CHECK(std::isfinite(profile.matmul_flops) && profile.matmul_flops >= 0,
                "a rate of matrix products in FLOP per second, profile " + profile.name);
  SIXFOLD_CHECK(std::isfinite(profile.copy_bytes_per_s) && profile.copy_bytes_per_s >= 0,
                "a copy rate, or 0, profile " + profile.name);
  SIXFOLD_CHECK_LE(1, profile.num_rails, "network cards a node, profile " + profile.name);
}

}  // namespace sixfold::comm
