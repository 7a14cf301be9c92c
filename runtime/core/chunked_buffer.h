// ChunkedBuffer: records that are only added, up to a limit. It grows by whole chunks and never moves what it has, so
// adding costs a store, and an allocation once a chunk.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

namespace sixfold {

template <typename T>
class ChunkedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  /// Holds up to `max_bytes` bytes of records, rounded up to whole chunks; allocates the first chunk.
  explicit ChunkedBuffer(size_t max_bytes) : max_chunks_((max_bytes + kChunkBytes - 1) / kChunkBytes) {
    chunks_.reserve(max_chunks_);
    if (max_chunks_ > 0) add_chunk();
  }

  size_t size() const { return size_; }
  /// False where it is full: the record is not kept.
  bool push_back(const T& record) {
    if (size_ == chunks_.size() * kPerChunk) {
      if (chunks_.size() == max_chunks_) return false;
      add_chunk();
    }
    (*this)[size_++] = record;
    return true;
  }
  T& operator[](size_t index) { return chunks_[index / kPerChunk][index % kPerChunk]; }
  const T& operator[](size_t index) const { return chunks_[index / kPerChunk][index % kPerChunk]; }
  /// Keeps the chunks.
  void clear() { size_ = 0; }
  std::vector<T> to_vector() const {
    std::vector<T> records;
    records.reserve(size_);
    for (size_t i = 0; i < size_; ++i) records.push_back((*this)[i]);
    return records;
  }

 private:
  static constexpr size_t kChunkBytes = 64 * 1024;
  static constexpr size_t kPerChunk = kChunkBytes / sizeof(T);

  void add_chunk() { chunks_.push_back(std::make_unique<T[]>(kPerChunk)); }

  size_t max_chunks_, size_ = 0;
  std::vector<std::unique_ptr<T[]>> chunks_;
};

}  // namespace sixfold
