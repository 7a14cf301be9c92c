#include "runtime/train/safetensors.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace sixfold::train {

static_assert(std::endian::native == std::endian::little, "safetensors hold little-endian elements");

namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr size_t kHeaderAlignment = 8;             // so that the data may be mapped and used in place
const std::string kMetadata = "__metadata__";

std::string stored_dtype_name(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return "F32";
    case DType::BF16:
      return "BF16";
    case DType::F16:
      return "F16";
    case DType::I32:
      return "I32";
    case DType::I64:
      return "I64";
    case DType::U8:
      return "U8";
  }
  return "";
}

DType parse_stored_dtype(const std::string& name) {
  for (DType dtype : kAllDTypes) {
    if (name == stored_dtype_name(dtype)) return dtype;
  }
  throw ConfigError("dtype " + name + " is not supported: allowed are F32, BF16, F16, I32, I64, U8");
}

// Parses, refusing duplicate names, which JSON libraries let pass.
Json parse_header(const std::string& text) {
  if (text.empty() || text.front() != '{') throw ConfigError("the header is not a JSON object");
  std::set<std::string> names;
  const auto refuse_duplicates = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::key && depth == 1 && !names.insert(value.get<std::string>()).second) {
      throw ConfigError("tensor " + value.get<std::string>() + " is there twice");
    }
    return true;
  };
  return Json::parse(text, refuse_duplicates);
}

// Bytes of a tensor as its shape says. Throws ConfigError where the product overflows.
uint64_t checked_bytes(const TensorInfo& info) {
  uint64_t bytes = dtype_bytes(info.dtype);
  for (int64_t dim : info.shape) {
    SIXFOLD_CHECK_LE(0, dim, "shape of tensor " + info.name);
    if (dim != 0 && bytes > std::numeric_limits<uint64_t>::max() / 2 / static_cast<uint64_t>(dim)) {
      throw ConfigError("tensor " + info.name + " of shape " + to_string(info.shape) + " is too large");
    }
    bytes *= static_cast<uint64_t>(dim);
  }
  return bytes;
}

struct StoredTensor {
  TensorInfo info;
  uint64_t begin = 0, end = 0;  // data_offsets
};

StoredTensor parse_tensor(const std::string& name, const Json& entry) {
  StoredTensor tensor;
  const Json& shape = entry.at("shape");
  if (!shape.is_array() ||
      !std::all_of(shape.begin(), shape.end(), [](const Json& d) { return d.is_number_unsigned(); })) {
    throw ConfigError("tensor " + name + " has shape " + shape.dump());
  }
  tensor.info = {name, parse_stored_dtype(entry.at("dtype").get<std::string>()), shape.get<Shape>()};
  const Json& offsets = entry.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    throw ConfigError("tensor " + name + ": data_offsets are not two whole numbers");
  }
  tensor.begin = offsets[0].get<uint64_t>();
  tensor.end = offsets[1].get<uint64_t>();
  if (tensor.end < tensor.begin || tensor.end - tensor.begin != checked_bytes(tensor.info)) {
    throw ConfigError("tensor " + name + " of shape " + to_string(tensor.info.shape) + " needs " +
                      std::to_string(checked_bytes(tensor.info)) + " bytes, its data_offsets are " + offsets.dump());
  }
  return tensor;
}

// Sorted by place in the file; throws ConfigError unless they tile [0, data_bytes).
void check_tiling(std::vector<StoredTensor>& tensors, uint64_t data_bytes) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t position = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.begin != position) {
      throw ConfigError("tensor " + tensor.info.name + " begins at " + std::to_string(tensor.begin) +
                        " where the one before ends at " + std::to_string(position));
    }
    position = tensor.end;
  }
  if (position != data_bytes) {
    throw ConfigError("the tensors have " + std::to_string(position) + " bytes, the file has " +
                      std::to_string(data_bytes));
  }
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorInfo>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), partial_path_(path.string() + ".partial") {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  uint64_t position = 0;
  for (const TensorInfo& info : tensors) {
    SIXFOLD_CHECK(info.name != kMetadata && !header.contains(info.name), "tensor name " + info.name);
    const uint64_t end = position + checked_bytes(info);
    header[info.name] = {
        {"dtype", stored_dtype_name(info.dtype)}, {"shape", info.shape}, {"data_offsets", {position, end}}};
    entries_[info.name] = {info.dtype, info.shape, position, false};
    position = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  const uint64_t length = text.size();
  for (auto& [name, entry] : entries_) entry.file_offset += sizeof(length) + length;

  file_.open(partial_path_, std::ios::binary | std::ios::trunc);
  if (!file_) throw ConfigError(partial_path_.string() + ": cannot be created");
  file_.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file_.write(text.data(), static_cast<std::streamsize>(length));
}

void SafetensorsWriter::write(const std::string& name, const Tensor& tensor) {
  const auto found = entries_.find(name);
  SIXFOLD_CHECK(found != entries_.end(), "tensor " + name + " was not announced");
  Entry& entry = found->second;
  SIXFOLD_CHECK(!entry.written, "tensor " + name + " is written twice");
  SIXFOLD_CHECK(entry.dtype == tensor.dtype() && entry.shape == tensor.shape(),
                "tensor " + name + " was announced with another dtype or shape");
  file_.seekp(static_cast<std::streamoff>(entry.file_offset));
  file_.write(static_cast<const char*>(tensor.raw()), static_cast<std::streamsize>(tensor.bytes()));
  if (!file_) throw ConfigError(partial_path_.string() + ": cannot be written (is the disk full?)");
  entry.written = true;
}

void SafetensorsWriter::finish() {
  for (const auto& [name, entry] : entries_) SIXFOLD_CHECK(entry.written, "tensor " + name + " is missing");
  file_.close();
  if (!file_) throw ConfigError(partial_path_.string() + ": cannot be written (is the disk full?)");
  std::error_code error;
  std::filesystem::rename(partial_path_, path_, error);
  if (error) throw ConfigError(path_.string() + ": cannot be written: " + error.message());
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path), file_(path, std::ios::binary) {
  if (!file_) throw ConfigError(path.string() + ": cannot be read");
  try {
    const uint64_t file_bytes = std::filesystem::file_size(path);
    uint64_t length = 0;
    if (file_bytes < sizeof(length)) throw ConfigError("shorter than the 8 bytes of the header's length");
    file_.read(reinterpret_cast<char*>(&length), sizeof(length));
    if (length > kMaxHeaderBytes || length > file_bytes - sizeof(length)) {
      throw ConfigError("a header of " + std::to_string(length) + " bytes in a file of " + std::to_string(file_bytes));
    }
    std::string text(length, '\0');
    file_.read(text.data(), static_cast<std::streamsize>(length));
    if (!file_) throw ConfigError("cannot be read");

    std::vector<StoredTensor> stored;
    const Json header = parse_header(text);
    for (const auto& [name, entry] : header.items()) {
      if (name == kMetadata) {
        metadata_ = entry.get<std::map<std::string, std::string>>();
      } else {
        stored.push_back(parse_tensor(name, entry));
      }
    }
    const uint64_t data_begin = sizeof(length) + length;
    check_tiling(stored, file_bytes - data_begin);
    for (StoredTensor& tensor : stored) {
      offsets_[tensor.info.name] = data_begin + tensor.begin;
      tensors_.push_back(std::move(tensor.info));
    }
  } catch (const std::exception& error) {
    throw ConfigError(path.string() + " is no safetensors file: " + error.what());
  }
}

const TensorInfo& SafetensorsFile::info(const std::string& name) const {
  const auto found =
      std::find_if(tensors_.begin(), tensors_.end(), [&](const TensorInfo& tensor) { return tensor.name == name; });
  if (found == tensors_.end()) throw ConfigError(path_.string() + ": has no tensor " + name);
  return *found;
}

void SafetensorsFile::read(const std::string& name, const Tensor& out) {
  const TensorInfo& stored = info(name);
  if (stored.dtype != out.dtype() || stored.shape != out.shape()) {
    throw ConfigError(path_.string() + ": tensor " + name + " is " + stored_dtype_name(stored.dtype) + " " +
                      to_string(stored.shape) + ", not " + stored_dtype_name(out.dtype()) + " " +
                      to_string(out.shape()));
  }
  file_.seekg(static_cast<std::streamoff>(offsets_.at(name)));
  file_.read(static_cast<char*>(out.raw()), static_cast<std::streamsize>(out.bytes()));
  if (!file_) throw ConfigError(path_.string() + ": tensor " + name + " cannot be read");
}

}  // namespace sixfold::train
