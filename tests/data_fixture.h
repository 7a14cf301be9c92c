// A folder of its own for each test, removed at the end, and files in it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace sixfold::test {

/// Numbers as little-endian bytes, `width` of each.
inline std::string little_endian(const std::vector<int64_t>& numbers, int width) {
  std::string bytes;
  for (int64_t number : numbers) {
    for (int i = 0; i < width; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xff);
  }
  return bytes;
}

/// llm.c's header: 256 numbers, of which three mean something.
inline std::string llmc_header(int64_t magic, int64_t version, int64_t num_tokens) {
  std::vector<int64_t> numbers(256, 0);
  numbers[0] = magic;
  numbers[1] = version;
  numbers[2] = num_tokens;
  return little_endian(numbers, 4);
}

class FolderTest : public ::testing::Test {
 protected:
  FolderTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("sixfold_data_" + std::to_string(getpid()) + "_" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path file(const std::string& name, const std::string& content) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  const std::filesystem::path folder_;
};

}  // namespace sixfold::test
