// TokenFile: 16-bit tokens of a file, mapped into memory: a file may be larger than that. What has been read of it
// counts as memory of the process as long as the system has no better use for it.
//
//   llmc   256 i32: magic 20240520, version 1, number of tokens, the others unused; then so many tokens
//   u16    tokens from the first byte to the last, as nanoGPT writes them
//
// All numbers are little-endian, tokens unsigned.
// Sources: llm.c, dev/data/data_common.py; nanoGPT, data/openwebtext/prepare.py.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace sixfold::train {

enum class TokenFormat { Llmc, U16 };

/// Whether the file begins with the magic number; false, too, where it is shorter or cannot be read.
bool has_llmc_magic(const std::filesystem::path& path);

class TokenFile {
 public:
  /// Maps the regular file `path`. Throws ConfigError that begins with `name` ("--data FILE") and says what is at which
  /// byte and what may be there: when the file cannot be read, is empty, or is not of `format` from end to end.
  TokenFile(const std::filesystem::path& path, TokenFormat format, const std::string& name);

  /// Valid until this is destroyed; a TokenFile that is moved takes them along. Nobody may cut the file short
  /// meanwhile.
  std::span<const uint16_t> tokens() const { return tokens_; }
  /// What has been read no longer counts, until it is read again.
  void release_pages() const;

 private:
  struct Unmap {
    size_t num_bytes;
    void operator()(const std::byte* begin) const;
  };
  std::unique_ptr<const std::byte, Unmap> mapping_;
  std::span<const uint16_t> tokens_;
};

}  // namespace sixfold::train
