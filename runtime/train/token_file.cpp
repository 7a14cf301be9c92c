#include "runtime/train/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

#include "runtime/core/error.h"

namespace sixfold::train {

namespace {

static_assert(std::endian::native == std::endian::little, "numbers of the files are read as they lie");

constexpr int32_t kMagic = 20240520, kVersion = 1;
constexpr size_t kHeaderBytes = 256 * sizeof(int32_t);
// Bytes at which the header's numbers lie.
constexpr size_t kMagicAt = 0, kVersionAt = 4, kNumTokensAt = 8;

int32_t number_at(const std::byte* file, size_t at) {
  int32_t number = 0;
  std::memcpy(&number, file + at, sizeof(number));
  return number;
}

std::string at_byte(size_t at) {
  return " (at byte " + std::to_string(at) + ")";
}

void check_llmc(const std::byte* file, size_t num_bytes, const std::string& name) {
  const auto refuse = [&](const std::string& what) { throw ConfigError(name + ": " + what); };
  if (num_bytes < kHeaderBytes) {
    refuse("the file has " + std::to_string(num_bytes) + " bytes; the header of an llm.c file alone has " +
           std::to_string(kHeaderBytes));
  }
  if (const int32_t magic = number_at(file, kMagicAt); magic != kMagic) {
    refuse("magic number " + std::to_string(magic) + at_byte(kMagicAt) + "; allowed is " + std::to_string(kMagic) +
           ", and for files without a header --data-format u16");
  }
  if (const int32_t version = number_at(file, kVersionAt); version != kVersion) {
    refuse("version " + std::to_string(version) + at_byte(kVersionAt) + "; allowed is " + std::to_string(kVersion));
  }
  const int32_t num_tokens = number_at(file, kNumTokensAt);
  if (num_tokens < 1) {
    refuse(std::to_string(num_tokens) + " tokens" + at_byte(kNumTokensAt) + "; allowed are 1 to " +
           std::to_string(std::numeric_limits<int32_t>::max()));
  }
  const size_t expected = kHeaderBytes + static_cast<size_t>(num_tokens) * sizeof(uint16_t);
  if (num_bytes != expected) {
    refuse("the header says " + std::to_string(num_tokens) + " tokens" + at_byte(kNumTokensAt) +
           ", that is a file of " + std::to_string(expected) + " bytes, but it has " + std::to_string(num_bytes) +
           (num_bytes < expected ? ": it has been cut short" : ": something follows them"));
  }
}

void check_u16(size_t num_bytes, const std::string& name) {
  if (num_bytes % sizeof(uint16_t) == 0) return;
  throw ConfigError(name + ": the file has " + std::to_string(num_bytes) +
                    " bytes; allowed is an even number, for tokens of two bytes each");
}

}  // namespace

bool has_llmc_magic(const std::filesystem::path& path) {
  std::byte begin[sizeof(kMagic)];
  std::ifstream file(path, std::ios::binary);
  return file.read(reinterpret_cast<char*>(begin), sizeof(begin)) && number_at(begin, 0) == kMagic;
}

TokenFile::TokenFile(const std::filesystem::path& path, TokenFormat format, const std::string& name) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status = {};
  if (file < 0 || fstat(file, &status) != 0) {
    const std::string reason = std::strerror(errno);
    if (file >= 0) close(file);
    throw ConfigError(name + ": cannot be read (" + reason + ")");
  }
  const auto num_bytes = static_cast<size_t>(status.st_size);
  void* begin = num_bytes == 0 ? nullptr : mmap(nullptr, num_bytes, PROT_READ, MAP_PRIVATE, file, 0);
  const int error = errno;
  close(file);  // a mapping stays
  if (num_bytes == 0) throw ConfigError(name + ": the file is empty");
  if (begin == MAP_FAILED) throw ConfigError(name + ": cannot be mapped into memory (" + std::strerror(error) + ")");
  mapping_ = {static_cast<const std::byte*>(begin), Unmap{num_bytes}};

  const std::byte* tokens = mapping_.get();
  if (format == TokenFormat::Llmc) {
    check_llmc(tokens, num_bytes, name);
    tokens += kHeaderBytes;
  } else {
    check_u16(num_bytes, name);
  }
  const auto bytes_of_tokens = static_cast<size_t>(mapping_.get() + num_bytes - tokens);
  tokens_ = {reinterpret_cast<const uint16_t*>(tokens), bytes_of_tokens / sizeof(uint16_t)};
}

void TokenFile::release_pages() const {
  // Of a read-only mapping nothing is lost. That it may fail is no matter: it is about a number in a report.
  madvise(const_cast<std::byte*>(mapping_.get()), mapping_.get_deleter().num_bytes, MADV_DONTNEED);
}

void TokenFile::Unmap::operator()(const std::byte* begin) const {
  munmap(const_cast<std::byte*>(begin), num_bytes);
}

}  // namespace sixfold::train
