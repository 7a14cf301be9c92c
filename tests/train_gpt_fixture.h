// train_gpt as a user starts it, on a small model and text, and what its runs leave behind.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/core/rng.h"
#include "runtime/train/safetensors.h"
#include "tests/subprocess.h"

namespace sixfold::test {

namespace fs = std::filesystem;
using nlohmann::json;

inline const std::string kProgram = SIXFOLD_BUILD_DIR "/train_gpt ";
inline constexpr int64_t kDim = 32;
inline const std::string kModel = "--layers 2 --dim 32 --seq-len 16 --global-batch 12 --dropout 0 --eval-windows 6 ";
inline const std::string kSgd = "--steps 20 --optimizer sgd --lr 0.5 --warmup 2 ";

// A folder with a text of 20000 bytes, in words, so that there is something to learn.
class TrainGpt : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = fs::temp_directory_path() / ("sixfold_matrix_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    std::ofstream text(folder_ / "text");
    for (uint64_t i = 0; i < 5000; ++i) text << "the of a to "[philox_hash(1, i) % 12] << "ring"[i % 4] << "es\n";
    ASSERT_TRUE(text.flush());
  }
  static void TearDownTestSuite() { fs::remove_all(folder_); }

  static std::string file(const std::string& name) { return (folder_ / name).string(); }
  static std::string data() { return "--data " + file("text") + " "; }

  // What starts a run of n ranks: threads of one process, or processes where this build has MPI.
  static std::string launch(bool processes, int n) {
#ifdef SIXFOLD_MPIRUN
    if (processes) return mpirun(n) + kProgram;
#endif
    EXPECT_FALSE(processes);
    return kProgram + "--ranks " + std::to_string(n) + " ";
  }
  static std::vector<bool> kinds_of_ranks() {
#ifdef SIXFOLD_MPIRUN
    return {false, true};
#else
    return {false};
#endif
  }
  static Outcome train(const std::string& start, const std::string& options) {
    const std::string threads = options.find("--threads") == std::string::npos ? "--threads 1 " : "";
    return run_command(start + model_ + data() + threads + "--quiet --sample 0 --no-gemm-rate " + options);
  }
  static std::vector<json> log_of(const std::string& start, const std::string& options) {
    const Outcome outcome = train(start, options + " --log " + file("log"));
    EXPECT_EQ(outcome.exit_code, 0) << start << options << "\n" << outcome.output;
    std::vector<json> objects;
    std::ifstream log(file("log"));
    for (std::string line; std::getline(log, line);) objects.push_back(json::parse(line));
    return objects;
  }

  static inline fs::path folder_;
  static inline std::string model_ = kModel;
};

inline double norm(const std::vector<float>& values) {
  double sum = 0;
  for (float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

inline std::map<std::string, std::vector<float>> read_dump(const std::string& path) {
  Memory memory;
  train::SafetensorsFile file(path);
  std::map<std::string, std::vector<float>> tensors;
  for (const train::TensorInfo& info : file.tensors()) {
    const Tensor tensor = Tensor::empty(info.shape, info.dtype, memory, Category::Other);
    file.read(info.name, tensor);
    tensors[info.name] = {tensor.data<float>(), tensor.data<float>() + tensor.numel()};
  }
  return tensors;
}

// ||difference|| <= 1e-5 ||reference|| of every tensor. A key bias adds the same to all scores of a query, so its
// gradient is exactly zero and what is computed is noise: there an absolute bound.
inline void expect_same_run(const std::string& path, const std::string& reference_path, int64_t dim = kDim) {
  const auto tensors = read_dump(path), reference = read_dump(reference_path);
  ASSERT_EQ(tensors.size(), reference.size());
  for (const auto& [name, expected] : reference) {
    ASSERT_TRUE(tensors.count(name)) << name;
    std::vector<float> difference = tensors.at(name), base = expected;
    ASSERT_EQ(difference.size(), base.size());
    for (size_t i = 0; i < base.size(); ++i) difference[i] -= base[i];
    if (name.find("c_attn.bias") != std::string::npos) {
      for (size_t i = static_cast<size_t>(dim); i < 2 * static_cast<size_t>(dim); ++i) {
        EXPECT_LE(std::abs(difference[i]), 1e-9) << name << " " << i;
        difference[i] = base[i] = 0;
      }
    }
    EXPECT_LE(norm(difference), 1e-5 * norm(base)) << name;
    EXPECT_GT(norm(base), 0) << name;
  }
}

}  // namespace sixfold::test
