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
bool append_file(const fs::path& path, bool only_text, std::vector<uint8_t>& bytes) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError("--data " + path.string() + ": cannot be read");
  const size_t begin = bytes.size();
  const auto size = static_cast<size_t>(fs::file_size(path));
  bytes.resize(begin + size);
  file.read(reinterpret_cast<char*>(bytes.data() + begin), static_cast<std::streamsize>(size));
  if (static_cast<size_t>(file.gcount()) != size) throw ConfigError("--data " + path.string() + ": cannot be read");
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

}  // namespace

Corpus load_corpus(const fs::path& path) {
  Corpus corpus;
  try {
    if (fs::is_regular_file(path)) {
      append_file(path, false, corpus.bytes);
      corpus.num_files = 1;
    } else if (fs::is_directory(path)) {
      for (const std::string& name : files_below(path)) {
        ++(append_file(path / name, true, corpus.bytes) ? corpus.num_files : corpus.num_skipped);
      }
    } else {
      throw ConfigError("--data " + path.string() +
                        (fs::exists(path) ? ": is no regular file and no folder" : ": no such file or folder") +
                        "; allowed are a file and a folder of text files");
    }
  } catch (const fs::filesystem_error& error) {
    throw ConfigError("--data " + path.string() + ": " + error.what());
  }
  if (corpus.bytes.empty()) {
    throw ConfigError("--data " + path.string() +
                      (fs::is_directory(path) ? ": no text in this folder (" : ": the file is empty (") +
                      std::to_string(corpus.num_files) + " text files, " + std::to_string(corpus.num_skipped) +
                      " skipped for a NUL byte)");
  }
  return corpus;
}

CorpusSplit split_corpus(std::span<const uint8_t> bytes, double validation_fraction, int64_t seq_len,
                         int64_t global_batch, const std::string& name) {
  const auto held_out = static_cast<size_t>(std::floor(static_cast<double>(bytes.size()) * validation_fraction));
  const CorpusSplit split{bytes.first(bytes.size() - held_out), bytes.last(held_out)};
  const int64_t num_windows = Windows(split.train, seq_len).count();
  if (num_windows < global_batch) {
    throw ConfigError("--data " + name + ": " + std::to_string(split.train.size()) + " bytes for training make " +
                      std::to_string(num_windows) + " windows of --seq-len " + std::to_string(seq_len) +
                      "; --global-batch " + std::to_string(global_batch) + " needs as many, that is at least " +
                      std::to_string(global_batch * seq_len + 1) + " bytes");
  }
  if (validation_fraction > 0 && Windows(split.validation, seq_len).count() < 1) {
    throw ConfigError("--data " + name + ": the held-out tail of " + std::to_string(held_out) +
                      " bytes is shorter than one window of --seq-len " + std::to_string(seq_len) +
                      " + 1; allowed: a larger --val-fraction, or 0 to train without validation");
  }
  return split;
}

Windows::Windows(std::span<const uint8_t> bytes, int64_t seq_len) : bytes_(bytes), seq_len_(seq_len) {
  SIXFOLD_CHECK_LE(1, seq_len, "windows have at least one position");
  count_ = bytes.empty() ? 0 : (static_cast<int64_t>(bytes.size()) - 1) / seq_len;
}

void Windows::copy(int64_t window, std::span<int32_t> tokens, std::span<int32_t> targets) const {
  SIXFOLD_CHECK_LE(0, window, "window of a text");
  SIXFOLD_CHECK_LT(window, count_, "window of a text");
  SIXFOLD_CHECK_EQ(static_cast<int64_t>(tokens.size()), seq_len_, "tokens of a window");
  SIXFOLD_CHECK_EQ(static_cast<int64_t>(targets.size()), seq_len_, "targets of a window");
  const auto text = bytes_.subspan(static_cast<size_t>(window * seq_len_), static_cast<size_t>(seq_len_ + 1));
  std::copy(text.begin(), text.end() - 1, tokens.begin());
  std::copy(text.begin() + 1, text.end(), targets.begin());
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
