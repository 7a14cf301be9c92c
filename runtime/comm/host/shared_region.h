// SharedRegion: zeroed memory that several ranks see, and how ranks of one host come to share one.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace sixfold::comm {

/// A mapping of `bytes` bytes, unmapped with the last shared_ptr to it. Pages exist once touched.
class SharedRegion {
 public:
  /// Anonymous pages, for threads of one process. Throws CommError.
  static std::shared_ptr<SharedRegion> anonymous(size_t bytes);
  /// Maps a file descriptor that it does not own; other processes that map it see the same bytes. Throws CommError.
  static std::shared_ptr<SharedRegion> of_file(int fd, size_t bytes);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  SharedRegion(void* data, size_t bytes) : data_(static_cast<std::byte*>(data)), bytes_(bytes) {}
  static std::shared_ptr<SharedRegion> map(size_t bytes, int flags, int fd);

  std::byte* data_;
  size_t bytes_;
};

/// How the members of a group get at one region. One per rank; owned by the World.
class RegionProvider {
 public:
  virtual ~RegionProvider() = default;
  /// Called by every member (world ranks, in the group's order) with the same key, which names the region once in the
  /// life of the World; returns a zeroed region of `bytes` bytes shared by them all. The region must be held until
  /// every member has opened it. Throws CommError.
  virtual std::shared_ptr<SharedRegion> open(const std::string& key, size_t bytes, const std::vector<int>& members) = 0;
};

}  // namespace sixfold::comm
