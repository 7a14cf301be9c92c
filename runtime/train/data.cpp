#include "runtime/train/data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>

#include "runtime/core/divisors.h"
#include "runtime/core/error.h"
#include "runtime/train/permutation.h"

namespace sixfold::train {

namespace fs = std::filesystem;

namespace {

// Appends the file's bytes; false, and nothing appended, when `only_text` is set and there is a NUL byte among them.
bool append_file(const fs::path& path, bool only_text, const std::string& flag, std::vector<uint8_t>& bytes) {
  const std::string unreadable = flag + " " + path.string() + ": cannot be read";
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError(unreadable);
  const size_t begin = bytes.size();
  const auto size = static_cast<size_t>(fs::file_size(path));
  bytes.resize(begin + size);
  file.read(reinterpret_cast<char*>(bytes.data() + begin), static_cast<std::streamsize>(size));
  if (static_cast<size_t>(file.gcount()) != size) throw ConfigError(unreadable);
  const bool is_text = size == 0 || std::memchr(bytes.data() + begin, 0, size) == nullptr;
  if (only_text && !is_text) bytes.resize(begin);
  return is_text;
}

// Relative paths, in byte order, so that the corpus is the same on every machine that has the same files.
std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) names.push_back(entry.path().lexically_relative(folder).generic_string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Corpus load_text(const DataSource& source) {
  Corpus corpus;
  const bool is_folder = fs::is_directory(source.path);
  if (is_folder) {
    for (const std::string& name : files_below(source.path)) {
      ++(append_file(source.path / name, true, source.flag, corpus.bytes) ? corpus.num_files : corpus.num_skipped);
    }
  } else {
    append_file(source.path, false, source.flag, corpus.bytes);
    corpus.num_files = 1;
  }
  if (corpus.bytes.empty()) {
    throw ConfigError(source.name() + (is_folder ? ": no text in this folder (" : ": the file is empty (") +
                      std::to_string(corpus.num_files) + " text files, " + std::to_string(corpus.num_skipped) +
                      " skipped for a NUL byte)");
  }
  return corpus;
}

// nullopt: text.
std::optional<TokenFormat> token_format(const DataSource& source) {
  switch (source.format) {
    case DataFormat::Text:
      return std::nullopt;
    case DataFormat::Llmc:
      return TokenFormat::Llmc;
    case DataFormat::U16:
      return TokenFormat::U16;
    case DataFormat::Auto:
      break;
  }
  if (source.path.extension() != ".bin" || !fs::is_regular_file(source.path)) return std::nullopt;
  return has_llmc_magic(source.path) ? TokenFormat::Llmc : TokenFormat::U16;
}

void check_there(const DataSource& source, bool is_text) {
  if (fs::is_regular_file(source.path) || (is_text && fs::is_directory(source.path))) return;
  const std::string found = !fs::exists(source.path) ? ": no such file or folder"
                            : is_text                ? ": is no regular file and no folder"
                                                     : ": is no regular file";
  throw ConfigError(source.name() + found +
                    (is_text ? "; allowed are a file and a folder of text files" : "; allowed is a file of tokens"));
}

void check_vocabulary(const Corpus& corpus, const DataSource& source) {
  constexpr size_t kAtATime = size_t{1} << 24;  // so much of a file is memory at any one time
  const TokenView tokens = corpus.tokens();
  for (size_t begin = 0; begin < tokens.size(); begin += kAtATime) {
    const TokenView rest = tokens.last(tokens.size() - begin);
    const std::optional<size_t> found = rest.first(std::min(kAtATime, rest.size())).find_from(source.vocab_size);
    if (found) {
      throw ConfigError(source.name() + ": " + tokens.unit() + " " + std::to_string(begin + *found) + " is " +
                        std::to_string(rest[*found]) + ", outside of the vocabulary; allowed are 0 to " +
                        std::to_string(source.vocab_size - 1) + ", and more with --vocab or another --model");
    }
    if (corpus.file) corpus.file->release_pages();
  }
}

// How much there is: "95 bytes".
std::string amount(size_t count, TokenView of) {
  return std::to_string(count) + " " + of.unit() + "s";
}

}  // namespace

DataFormat parse_data_format(std::string_view name) {
  if (name == "auto") return DataFormat::Auto;
  if (name == "text") return DataFormat::Text;
  if (name == "llmc") return DataFormat::Llmc;
  if (name == "u16") return DataFormat::U16;
  throw ConfigError("--data-format " + std::string(name) + ": allowed are auto, text, llmc, u16");
}

Corpus load_corpus(const DataSource& source) {
  try {
    const std::optional<TokenFormat> format = token_format(source);
    check_there(source, !format);
    Corpus corpus;
    if (format) {
      corpus.file.emplace(source.path, *format, source.name());
      corpus.num_files = 1;
    } else {
      corpus = load_text(source);
    }
    check_vocabulary(corpus, source);
    return corpus;
  } catch (const fs::filesystem_error& error) {
    throw ConfigError(source.name() + ": " + error.what());
  }
}

CorpusSplit split_corpus(TokenView tokens, double validation_fraction, int64_t seq_len, int64_t global_batch,
                         const std::string& name) {
  const auto held_out = static_cast<size_t>(std::floor(static_cast<double>(tokens.size()) * validation_fraction));
  const CorpusSplit split{tokens.first(tokens.size() - held_out), tokens.last(held_out)};
  const int64_t num_windows = Windows(split.train, seq_len).count();
  if (num_windows < global_batch) {
    throw ConfigError(name + ": " + amount(split.train.size(), tokens) + " for training make " +
                      std::to_string(num_windows) + " windows of --seq-len " + std::to_string(seq_len) +
                      "; --global-batch " + std::to_string(global_batch) + " needs as many, that is at least " +
                      amount(static_cast<size_t>(global_batch * seq_len + 1), tokens));
  }
  if (validation_fraction > 0 && Windows(split.validation, seq_len).count() < 1) {
    throw ConfigError(name + ": the held-out tail of " + amount(held_out, tokens) +
                      " is shorter than one window of --seq-len " + std::to_string(seq_len) +
                      " + 1; allowed: a larger --val-fraction, or 0 to train without validation");
  }
  return split;
}

CorpusSplit with_validation(const CorpusSplit& training, TokenView validation, int64_t seq_len,
                            const std::string& name) {
  if (validation.are_bytes() != training.train.are_bytes()) {
    throw ConfigError(name + ": is one of " + validation.unit() + "s, but --data of " + training.train.unit() +
                      "s; allowed are two of a kind");
  }
  if (Windows(validation, seq_len).count() < 1) {
    throw ConfigError(name + ": " + amount(validation.size(), validation) +
                      " are shorter than one window of --seq-len " + std::to_string(seq_len) +
                      " + 1, which is the least that is allowed");
  }
  return {training.train, validation};
}

Windows::Windows(TokenView tokens, int64_t seq_len) : tokens_(tokens), seq_len_(seq_len) {
  SIXFOLD_CHECK_LE(1, seq_len, "windows have at least one position");
  count_ = tokens.size() == 0 ? 0 : (static_cast<int64_t>(tokens.size()) - 1) / seq_len;
}

void Windows::copy(int64_t window, std::span<int32_t> tokens, std::span<int32_t> targets) const {
  SIXFOLD_CHECK_LE(0, window, "window of a text");
  SIXFOLD_CHECK_LT(window, count_, "window of a text");
  SIXFOLD_CHECK_EQ(static_cast<int64_t>(tokens.size()), seq_len_, "tokens of a window");
  SIXFOLD_CHECK_EQ(static_cast<int64_t>(targets.size()), seq_len_, "targets of a window");
  const auto begin = static_cast<size_t>(window * seq_len_);
  tokens_.copy(begin, tokens);
  tokens_.copy(begin + 1, targets);
}

BatchOrder::BatchOrder(int64_t num_windows, int64_t global_batch, uint64_t seed, bool shuffle)
    : num_windows_(num_windows), global_batch_(global_batch), seed_(seed), shuffle_(shuffle) {
  SIXFOLD_CHECK_LE(1, global_batch, "rows of a global batch");
  SIXFOLD_CHECK_LE(global_batch, num_windows, "windows of one global batch");
}

int64_t BatchOrder::window(int64_t step, int64_t row) const {
  SIXFOLD_CHECK_LE(0, step, "step");
  SIXFOLD_CHECK_LE(0, row, "row of a global batch");
  SIXFOLD_CHECK_LT(row, global_batch_, "row of a global batch");
  const int64_t entry = (step % steps_per_epoch()) * global_batch_ + row;
  if (!shuffle_) return entry;
  return Permutation(num_windows_, seed_, static_cast<uint64_t>(step / steps_per_epoch()))(entry);
}

void check_batch_share(const BatchShare& share) {
  if (share.global_batch % share.dp_size != 0) {
    const int64_t below = share.global_batch / share.dp_size * share.dp_size;
    throw ConfigError("--global-batch " + std::to_string(share.global_batch) + " does not divide over dp = " +
                      std::to_string(share.dp_size) + ": allowed are multiples of it, such as " +
                      (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(below + share.dp_size));
  }
  if (share.rows_per_rank() % share.micro_batch != 0) {
    throw ConfigError("--micro-batch " + std::to_string(share.micro_batch) + " does not divide the " +
                      std::to_string(share.rows_per_rank()) + " rows of a rank (--global-batch " +
                      std::to_string(share.global_batch) + " / dp = " + std::to_string(share.dp_size) +
                      "): allowed are " + divisors_of(share.rows_per_rank()));
  }
}

}  // namespace sixfold::train
