// Files of named tensors in the format of Hugging Face safetensors:
//
//   8 bytes   length N of the header, little-endian
//   N bytes   JSON: {"NAME": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, .., "__metadata__": {..}}
//   the rest  raw elements, little-endian, row-major; offsets count from here, without gaps, up to the end of the file
//
// Source: https://huggingface.co/docs/safetensors (format). Elements are stored as they lie in memory: a big-endian
// host is refused at compile time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "runtime/core/tensor.h"

namespace sixfold::train {

struct TensorInfo {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
};

/// Writes a file whose tensors come one by one, so that they need not be in memory together. The file has another name
/// (PATH.partial) until finish(): a run that is killed leaves no half file under the name asked for.
class SafetensorsWriter {
 public:
  /// Writes the header. Throws ConfigError when the file cannot be created.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorInfo>& tensors,
                    const std::map<std::string, std::string>& metadata = {});
  /// Each tensor once, in any order; dtype and shape as announced (CheckError).
  void write(const std::string& name, const Tensor& tensor);
  /// Throws CheckError when a tensor is missing, ConfigError when the disk did not take it all.
  void finish();

 private:
  struct Entry {
    DType dtype = DType::F32;
    Shape shape;
    uint64_t file_offset = 0;
    bool written = false;
  };

  std::filesystem::path path_, partial_path_;
  std::ofstream file_;
  std::map<std::string, Entry> entries_;
};

/// Reads such a file. The constructor checks the whole header: lengths, known dtypes, sizes that match the shapes, no
/// duplicate name, no overlap, no gap, nothing behind the last tensor. Throws ConfigError naming the file and the
/// fault.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in the order of their data
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool contains(const std::string& name) const { return offsets_.count(name) > 0; }
  /// Fills `out`, whose dtype and shape must be the stored ones; ConfigError otherwise, or when there is no such
  /// tensor.
  void read(const std::string& name, const Tensor& out);

 private:
  const TensorInfo& info(const std::string& name) const;

  std::filesystem::path path_;
  std::ifstream file_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, uint64_t> offsets_;  // in the file
};

}  // namespace sixfold::train
