#include "examples/compare_strategies/strategies.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <regex>
#include <set>

#include "runtime/core/divisors.h"
#include "runtime/core/error.h"

namespace sixfold::compare_strategies {

namespace {

constexpr int kMaxNumber = 1000000;
constexpr const char* kParts =
    "a mesh such as pp2xdp2xtp2, one, ddp, zero1, zero2, zero3, hsdp, megatron, gpipe, 1f1b, interleaved, recompute, "
    "no-overlap, mN";

[[noreturn]] void refuse(const std::string& strategy, const std::string& why, const std::string& allowed) {
  throw ConfigError("--strategies " + strategy + ": " + why + " (allowed: " + allowed + ")");
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\n"), last = text.find_last_not_of(" \t\n");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

/// Without blanks around the pieces.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> pieces;
  size_t start = 0;
  for (size_t at = text.find(separator); at != std::string::npos; at = text.find(separator, start)) {
    pieces.push_back(trimmed(text.substr(start, at - start)));
    start = at + 1;
  }
  pieces.push_back(trimmed(text.substr(start)));
  return pieces;
}

/// 1 to kMaxNumber, without sign or leading zero; else 0.
int number_of(const std::string& digits) {
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool whole = error == std::errc{} && end == digits.data() + digits.size();
  return whole && digits[0] != '0' && digits[0] != '-' && value <= kMaxNumber ? value : 0;
}

int* size_of_axis(parallel::MeshShape& mesh, const std::string& axis) {
  if (axis == "pp") return &mesh.pp;
  if (axis == "dp") return &mesh.dp;
  if (axis == "sp") return &mesh.sp;
  if (axis == "tp") return &mesh.tp;
  return nullptr;
}

/// Begins like an axis with a number.
bool looks_like_mesh(const std::string& part) {
  parallel::MeshShape mesh;
  return part.size() > 2 && size_of_axis(mesh, part.substr(0, 2)) != nullptr;
}

void read_mesh(const std::string& part, StrategySpec& spec) {
  std::set<std::string> seen;
  for (const std::string& text : split(part, 'x')) {
    const std::string axis = text.substr(0, 2), form = "pp, dp, sp or tp with a number, such as tp2";
    int* size = size_of_axis(spec.mesh, axis);
    if (size == nullptr) refuse(spec.name, "'" + text + "' in '" + part + "' is no axis", form);
    if (!seen.insert(axis).second) refuse(spec.name, "'" + part + "' names " + axis + " twice", "each axis once");
    *size = number_of(text.substr(2));
    if (*size == 0) refuse(spec.name, "'" + text + "' in '" + part + "' is no number of ranks", form);
  }
}

/// Words that say the same thing in different ways: one of them at most.
const std::vector<std::vector<std::string>> kAlternatives = {{"ddp", "zero1", "zero2", "zero3"},
                                                             {"gpipe", "1f1b", "interleaved"}};

void read_word(const std::string& word, StrategySpec& spec) {
  if (word == "one") {
    spec.one_rank = true;
  } else if (word == "ddp") {
    spec.zero = 0;
  } else if (word == "zero1" || word == "zero2" || word == "zero3") {
    spec.zero = word.back() - '0';
  } else if (word == "hsdp") {
    spec.hsdp = true;
  } else if (word == "megatron") {
    spec.megatron = true;
  } else if (word == "gpipe" || word == "1f1b" || word == "interleaved") {
    spec.schedule = parallel::parse_pipeline_kind(word);
  } else if (word == "recompute") {
    spec.recompute = true;
  } else if (word == "no-overlap") {
    spec.overlap = false;
  } else if (word.size() > 1 && word[0] == 'm' && number_of(word.substr(1)) > 0) {
    spec.micro_batches = number_of(word.substr(1));
  } else {
    refuse(spec.name, word.empty() ? "a part is empty" : "'" + word + "' is no part", kParts);
  }
}

/// What a part is a choice of: two of one kind contradict one another.
std::string kind_of(const std::string& part) {
  if (looks_like_mesh(part)) return "a mesh";
  for (const std::vector<std::string>& words : kAlternatives) {
    if (std::find(words.begin(), words.end(), part) == words.end()) continue;
    std::string kind = "one of ";
    for (const std::string& word : words) kind += word + (word == words.back() ? "" : ", ");
    return kind;
  }
  const bool counts = part.size() > 1 && part[0] == 'm' && number_of(part.substr(1)) > 0;
  return counts ? "a number of micro-batches" : part;
}

void check_parts(const StrategySpec& spec, const std::set<std::string>& parts) {
  const auto has = [&](const char* word) { return parts.count(word) > 0; };
  if (spec.one_rank && parts.size() > 1) refuse(spec.name, "'one' is one rank alone", "no other part");
  for (const char* word : {"gpipe", "1f1b", "interleaved"}) {
    if (has(word) && spec.mesh.pp == 1) {
      refuse(spec.name, "'" + std::string(word) + "' needs stages", "a mesh with pp2 or more");
    }
  }
  if (spec.megatron && spec.mesh.tp == 1) {
    refuse(spec.name, "'megatron' needs tensor-parallel ranks", "a mesh with tp2 or more");
  }
  if (spec.hsdp && spec.zero < 2) refuse(spec.name, "'hsdp' shares out gradients", "hsdp with zero2, zero3 or neither");
}

StrategySpec parse_strategy(const std::string& text) {
  StrategySpec spec;
  std::set<std::string> parts, kinds;
  for (const std::string& part : split(text, '+')) spec.name += (spec.name.empty() ? "" : "+") + part;
  for (const std::string& part : split(text, '+')) {
    looks_like_mesh(part) ? read_mesh(part, spec) : read_word(part, spec);
    const std::string kind = kind_of(part);
    if (!kinds.insert(kind).second) refuse(spec.name, "'" + part + "' is one too many", kind);
    parts.insert(part);
  }
  const bool names_stage = parts.count("ddp") + parts.count("zero1") + parts.count("zero2") > 0;
  if (spec.hsdp && !names_stage) spec.zero = 3;
  check_parts(spec, parts);
  return spec;
}

/// "1 rank", "4 ranks".
std::string ranks_text(double count) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.0f rank%s", count, count == 1 ? "" : "s");
  return text;
}

parallel::MeshShape mesh_on(const StrategySpec& spec, int num_ranks) {
  const parallel::MeshShape& mesh = spec.mesh;
  const double others = 1.0 * mesh.pp * mesh.sp * mesh.tp, all = others * std::max(mesh.dp, 1);
  if (mesh.dp > 0 && all != num_ranks) {
    refuse(spec.name, "its mesh is of " + ranks_text(all) + ", and there are " + std::to_string(num_ranks),
           "a mesh of " + ranks_text(num_ranks) + "; without dp, ranks that are left are data parallel");
  }
  if (others > num_ranks || num_ranks % static_cast<int>(others) != 0) {
    refuse(spec.name, "its mesh is of " + ranks_text(others) + ", which do not divide the " + ranks_text(num_ranks),
           "a mesh of " + divisors_of(num_ranks) + " ranks; those that are left are data parallel");
  }
  return parallel::resolve_mesh(mesh, num_ranks);
}

/// The most micro-batches up to 2 pp that `rows` make; 1 where there is no pipeline or none fits.
int64_t micro_batches_of(const StrategySpec& spec, int64_t rows) {
  if (spec.micro_batches > 0) return spec.micro_batches;
  const int64_t pp = spec.mesh.pp, step = spec.schedule == parallel::PipelineKind::Interleaved ? pp : 1;
  if (pp == 1) return 1;
  for (int64_t m = 2 * pp; m > 1; m -= step) {
    if (rows % m == 0) return m;
  }
  return 1;
}

}  // namespace

std::vector<StrategySpec> parse_strategies(const std::string& list) {
  std::vector<StrategySpec> specs;
  for (const std::string& text : split(list, ',')) {
    if (text.empty()) refuse("'" + list + "'", "a strategy is empty", kParts);
    specs.push_back(parse_strategy(text));
  }
  return specs;
}

std::vector<std::string> default_strategies(int num_ranks) {
  if (num_ranks == 1) return {"one"};
  const std::string n = std::to_string(num_ranks);
  std::vector<std::string> names = {"one",
                                    "ddp",
                                    "ddp+no-overlap",
                                    "zero1",
                                    "zero2",
                                    "zero3",
                                    "hsdp",
                                    "tp" + n,
                                    "tp" + n + "+megatron",
                                    "sp" + n,
                                    "pp" + n + "+gpipe",
                                    "pp" + n + "+1f1b"};
  if (num_ranks % 2 == 0 && num_ranks >= 4) {
    const std::string half = std::to_string(num_ranks / 2);
    for (const std::string& name :
         {"dp" + half + "xtp2", "dp" + half + "xtp2+megatron+zero1", "dp" + half + "xsp2+zero3",
          "pp2xdp" + half + "+1f1b", "pp2xdp" + half + "+interleaved+zero1", "pp2xtp" + half + "+1f1b"}) {
      names.push_back(name);
    }
  }
  if (num_ranks % 4 == 0 && num_ranks >= 8) {
    const std::string quarter = std::to_string(num_ranks / 4);
    names.push_back("pp2xdp" + quarter + "xtp2+1f1b");
    names.push_back("pp2xdp" + quarter + "xtp2+megatron+zero1");
  }
  return names;
}

train_gpt::Options options_of(const StrategySpec& spec, const train_gpt::Options& base, int num_ranks) {
  train_gpt::Options options = base;
  if (spec.one_rank) {
    options.dp = 1;
    options.topology.clear();  // which is the others'
    return options;
  }
  const parallel::MeshShape mesh = mesh_on(spec, num_ranks);
  options.pp = mesh.pp;
  options.dp = mesh.dp;
  options.sp = mesh.sp;
  options.tp = mesh.tp;
  options.zero = spec.zero;
  options.hsdp = spec.hsdp;
  options.no_overlap = !spec.overlap;
  options.sequence_parallel = spec.megatron ? "megatron" : "none";
  options.pp_schedule = parallel::pipeline_kind_name(spec.schedule);
  options.recompute = options.recompute || spec.recompute;
  if (spec.micro_batches > 0 || (options.micro_batch == 0 && mesh.pp > 1)) {
    const int64_t rows = options.global_batch / mesh.dp, m = micro_batches_of(spec, rows);
    if (rows % m != 0) {
      refuse(spec.name, std::to_string(rows) + " rows of a rank do not make m" + std::to_string(m),
             "m with one of " + divisors_of(rows));
    }
    options.micro_batch = rows / m;
  }
  return options;
}

std::string in_words_of_strategies(const StrategySpec& spec, const train_gpt::Options& options,
                                   const std::string& message) {
  // A mesh as train_gpt begins its complaints about it; here the strategy's name stands for it.
  const std::string mesh = "--pp " + std::to_string(options.pp) + " --dp " + std::to_string(options.dp) + " --sp " +
                           std::to_string(options.sp) + " --tp " + std::to_string(options.tp) + ": ";
  std::string text = message.starts_with(mesh) ? message.substr(mesh.size()) : message;
  const std::pair<const char*, const char*> words[] = {
      {"--pp-schedule ", ""},
      {"--sequence-parallel ", ""},
      {" --virtual-stages ([0-9]+)", " of $1 chunks"},
      {"--zero ([0-9])", "zero$1"},
      {"--(pp|dp|sp|tp) ([0-9]+)", "$1$2"},
      {"--(pp|dp|sp|tp|hsdp)\\b", "$1"},
  };
  for (const auto& [flag, word] : words) text = std::regex_replace(text, std::regex(flag), word);
  return "--strategies " + spec.name + ": " + text;
}

}  // namespace sixfold::compare_strategies
