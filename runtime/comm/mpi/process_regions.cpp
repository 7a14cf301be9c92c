#include "runtime/comm/mpi/process_regions.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <thread>

#include "runtime/comm/host/patience.h"
#include "runtime/comm/host/progress.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

constexpr size_t kMaxKey = 1024;

[[noreturn]] void fail(const std::string& what) {
  throw CommError(what + ": " + std::strerror(errno));
}

// An address in the abstract namespace (unix(7)): it exists as long as its socket, never in the file system.
struct Address {
  sockaddr_un name{};
  socklen_t length = 0;

  Address(uint64_t job, int rank) {
    name.sun_family = AF_UNIX;
    const std::string text = "sixfold-" + std::to_string(job) + "-" + std::to_string(rank);
    std::memcpy(name.sun_path + 1, text.data(), text.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

// Room for one descriptor and the sender's credentials.
union Control {
  cmsghdr align;
  char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(ucred))];
};

int new_memory_file(size_t bytes) {
  const int fd = memfd_create("sixfold-links", MFD_CLOEXEC);
  if (fd < 0) fail("cannot make a memory file for links");
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    const int saved = errno;
    close(fd);
    errno = saved;
    fail("cannot size a memory file of " + std::to_string(bytes) + " bytes for links");
  }
  return fd;
}

/// A rank's part in opening a group.
class Opening final : public Awaited {
 public:
  Opening(const std::string& key, int peer) : key_(key), peer_(peer) {}
  std::string describe() const override { return "opening group " + key_; }
  std::string diagnose() const override { return "rank " + std::to_string(peer_) + " has not opened it"; }
  std::vector<int> awaited_ranks() const override { return {peer_}; }

 private:
  const std::string& key_;
  int peer_;
};

/// A wait for `peer`, with the patience of a World where there is one yet.
class OpeningWait {
 public:
  OpeningWait(Failure* failure, double timeout_s, const std::string& key, int peer)
      : failure_(failure), opening_(key, peer), deadline_(seconds_now() + timeout_s) {
    if (failure != nullptr) patience_.emplace(*failure, timeout_s, seconds_now());
  }
  /// While nothing moves. Throws CommError.
  void look() {
    const double now = seconds_now();
    if (failure_ != nullptr) {
      failure_->check();
      if (patience_->is_time_to_look(now)) patience_->look(opening_, now);
    } else if (now > deadline_) {
      throw CommError(opening_.describe() + ": " + opening_.diagnose() + " in time (--timeout)");
    }
  }

 private:
  Failure* failure_;
  Opening opening_;
  double deadline_;
  std::optional<Patience> patience_;
};

}  // namespace

ProcessRegions::ProcessRegions(uint64_t job, int rank, double timeout_s)
    : job_(job), rank_(rank), timeout_s_(timeout_s) {
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_ < 0) fail("cannot open a Unix socket");
  const int on = 1;
  setsockopt(socket_, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
  const Address address(job, rank);
  if (bind(socket_, address.get(), address.length) != 0)
    fail("cannot bind the Unix socket of rank " + std::to_string(rank));
}

ProcessRegions::~ProcessRegions() {
  for (const auto& [key, fd] : arrived_) close(fd);
  close(socket_);
}

std::shared_ptr<SharedRegion> ProcessRegions::open(const std::string& key, size_t bytes,
                                                   const std::vector<int>& members) {
  int fd = -1;
  if (members.front() == rank_) {
    fd = new_memory_file(bytes);
    for (size_t i = 1; i < members.size(); ++i) send_descriptor(fd, key, members[i]);
  } else {
    fd = receive_descriptor(key, members.front());
  }
  auto region = SharedRegion::of_file(fd, bytes);
  close(fd);
  return region;
}

void ProcessRegions::send_descriptor(int fd, const std::string& key, int to) {
  SIXFOLD_CHECK_LE(key.size(), kMaxKey, "key of a region");
  Address address(job_, to);
  iovec data{const_cast<char*>(key.data()), key.size()};
  Control control{};
  msghdr message{};
  message.msg_name = &address.name;
  message.msg_namelen = address.length;
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = CMSG_SPACE(sizeof(int));
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(int));

  OpeningWait wait(failure_, timeout_s_, key, to);
  while (sendmsg(socket_, &message, 0) < 0) {
    // A socket holds few datagrams; the receiver takes them when it opens its groups.
    const bool full = errno == EAGAIN || errno == ENOBUFS || errno == EINTR;
    if (!full) fail("cannot hand group " + key + " to rank " + std::to_string(to));
    wait.look();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

int ProcessRegions::receive_descriptor(const std::string& key, int from) {
  OpeningWait wait(failure_, timeout_s_, key, from);
  while (arrived_.count(key) == 0) {
    pollfd readable{socket_, POLLIN, 0};
    if (poll(&readable, 1, 100) > 0) {
      receive_one();
    } else {
      wait.look();
    }
  }
  const int fd = arrived_.at(key);
  arrived_.erase(key);
  return fd;
}

void ProcessRegions::receive_one() {
  char key[kMaxKey];
  iovec data{key, sizeof(key)};
  Control control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  const ssize_t length = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
  if (length < 0) return;
  int fd = -1;
  bool own_user = false;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET) continue;
    if (header->cmsg_type == SCM_RIGHTS) std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
    if (header->cmsg_type == SCM_CREDENTIALS) {
      ucred credentials{};
      std::memcpy(&credentials, CMSG_DATA(header), sizeof(credentials));
      own_user = credentials.uid == geteuid();
    }
  }
  if (fd < 0) return;
  // Abstract addresses have no permissions: whoever knows the job's word could write here. Only our own user counts.
  const bool fresh = own_user && arrived_.emplace(std::string(key, static_cast<size_t>(length)), fd).second;
  if (!fresh) close(fd);
}

}  // namespace sixfold::comm
