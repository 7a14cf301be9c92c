#include "runtime/comm/host/shared_region.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "runtime/core/error.h"

namespace sixfold::comm {

std::shared_ptr<SharedRegion> SharedRegion::map(size_t bytes, int flags, int fd) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
  if (data == MAP_FAILED) {
    throw CommError("cannot map " + std::to_string(bytes) + " bytes of memory for links: " + std::strerror(errno));
  }
  return std::shared_ptr<SharedRegion>(new SharedRegion(data, bytes));
}

std::shared_ptr<SharedRegion> SharedRegion::anonymous(size_t bytes) {
  return map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

std::shared_ptr<SharedRegion> SharedRegion::of_file(int fd, size_t bytes) {
  return map(bytes, MAP_SHARED, fd);
}

SharedRegion::~SharedRegion() {
  munmap(data_, bytes_);
}

}  // namespace sixfold::comm
