// Tokens of files, cut into windows, dealt out to steps, rows and ranks. Text is its bytes, one token each.
//
//   load_corpus    bytes of a file, or of all text files below a folder; or a file of tokens (token_file.h)
//   split_corpus   the tail is held out for validation
//   Windows        window w reads the seq_len + 1 tokens from w * seq_len on: inputs, and targets one further
//   BatchOrder     which window is row i of step s, for the global batch; the same on all ranks
//   BatchShare     which rows of the global batch are whose
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/train/token_file.h"
#include "runtime/train/token_view.h"

namespace sixfold::train {

inline constexpr int64_t kNumByteTokens = 256;

/// Auto: a regular file whose name ends in .bin is one of tokens, with a header where llm.c's magic number is; all else
/// is text.
enum class DataFormat { Auto, Text, Llmc, U16 };
/// "auto", "text", "llmc", "u16". Throws ConfigError for another name.
DataFormat parse_data_format(std::string_view name);

struct DataSource {
  std::filesystem::path path;
  DataFormat format = DataFormat::Auto;
  int64_t vocab_size = kNumByteTokens;  // tokens are below it
  std::string flag = "--data";          // that names the path

  /// "--data FILE": how messages begin.
  std::string name() const { return flag + " " + path.string(); }
};

/// Owns what its tokens lie in; views of them stay valid when it is moved.
struct Corpus {
  std::vector<uint8_t> bytes;     // of text
  std::optional<TokenFile> file;  // of tokens, where they are no text
  int64_t num_files = 0;
  int64_t num_skipped = 0;  // files of a folder that hold a NUL byte: not text

  TokenView tokens() const { return file ? TokenView(file->tokens()) : TokenView(std::span(bytes)); }
};

/// Text: the bytes of a file, whatever they are; or of all text files (no NUL byte) in and below a folder, one after
/// the other in the byte order of their relative paths. Else the tokens of a file, which is read once, to look at every
/// token, but not kept in memory. Throws ConfigError when nothing is there, when it cannot be read, holds no token or
/// is not what its format says, and for a token outside the vocabulary.
Corpus load_corpus(const DataSource& source);

/// Views of a corpus, or of one for each.
struct CorpusSplit {
  TokenView train, validation;
};
/// The last floor(size * validation_fraction) tokens are held out. Throws ConfigError when what is left makes fewer
/// windows than one global batch has, or when something is held out that makes no window. `name` is for the text.
CorpusSplit split_corpus(TokenView tokens, double validation_fraction, int64_t seq_len, int64_t global_batch,
                         const std::string& name);
/// `training` with all of `validation`, which has a corpus of its own. Throws ConfigError when that makes no window, or
/// has bytes where the other has tokens. `name` is for the text.
CorpusSplit with_validation(const CorpusSplit& training, TokenView validation, int64_t seq_len,
                            const std::string& name);

class Windows {
 public:
  Windows(TokenView tokens, int64_t seq_len);
  int64_t count() const { return count_; }
  /// tokens[t] = token t of the window, targets[t] = token t + 1; i32 [seq_len] each.
  void copy(int64_t window, std::span<int32_t> tokens, std::span<int32_t> targets) const;

 private:
  TokenView tokens_;
  int64_t seq_len_ = 0;
  int64_t count_ = 0;
};

/// Row i of step s is entry (s mod steps_per_epoch) * global_batch + i of the permutation of the windows that is keyed
/// by (seed, epoch). The windows that do not fill a global batch at the end of an epoch are dropped, for all ranks
/// together: the position is one global number, the step.
class BatchOrder {
 public:
  /// num_windows >= global_batch >= 1. Without `shuffle` the permutation is the identity.
  BatchOrder(int64_t num_windows, int64_t global_batch, uint64_t seed, bool shuffle);
  int64_t steps_per_epoch() const { return num_windows_ / global_batch_; }
  /// `step` counts from 0, 0 <= row < global_batch.
  int64_t window(int64_t step, int64_t row) const;

 private:
  int64_t num_windows_ = 0;
  int64_t global_batch_ = 0;
  uint64_t seed_ = 0;
  bool shuffle_ = true;
};

/// Row i of the global batch belongs to rank i mod dp_size; a rank takes its rows in order, micro_batch at a time.
struct BatchShare {
  int64_t global_batch = 1;
  int64_t micro_batch = 1;  // rows
  int dp_rank = 0;
  int dp_size = 1;

  int64_t rows_per_rank() const { return global_batch / dp_size; }
  int num_micro_batches() const { return static_cast<int>(rows_per_rank() / micro_batch); }
  /// The row of the global batch that is row `row` of this rank's micro-batch `index`.
  int64_t global_row(int index, int64_t row) const { return (index * micro_batch + row) * dp_size + dp_rank; }
};

/// Throws ConfigError, with the allowed values, unless dp_size divides the global batch and the micro-batch divides the
/// rows of a rank.
void check_batch_share(const BatchShare& share);

}  // namespace sixfold::train
