#include "runtime/comm/mpi/hosts.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <fstream>

#include "runtime/comm/mpi/mpi_types.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

/// One random number a boot; empty where /proc is not to be read.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) throw CommError("gethostname failed");
  return name.data();
}

/// "net:[4026531840]"
std::string network_namespace() {
  std::array<char, 64> name{};
  const ssize_t length = readlink("/proc/self/ns/net", name.data(), name.size() - 1);
  return length > 0 ? std::string(name.data(), static_cast<size_t>(length)) : std::string();
}

constexpr size_t kMaxName = 512;

/// Every rank's `name`, in rank order.
std::vector<std::string> gather(const std::string& name, int size) {
  SIXFOLD_CHECK_LE(name.size() + 1, kMaxName, "name of a host");
  std::array<char, kMaxName> mine{};
  std::memcpy(mine.data(), name.data(), name.size());
  std::vector<char> all(static_cast<size_t>(size) * kMaxName);
  check_mpi(MPI_Allgather(mine.data(), static_cast<int>(kMaxName), MPI_CHAR, all.data(), static_cast<int>(kMaxName),
                          MPI_CHAR, MPI_COMM_WORLD),
            "MPI_Allgather");
  std::vector<std::string> names;
  for (size_t r = 0; r < static_cast<size_t>(size); ++r) names.emplace_back(all.data() + r * kMaxName);
  return names;
}

}  // namespace

Hosts find_hosts() {
  int size = 1;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  const std::string boot = boot_id();
  const Topology topology = Topology::of_hosts(gather(host_name() + " " + boot + " " + network_namespace(), size));
  // Where no boot has a name, a host is a machine.
  const std::vector<std::string> machines = gather(boot.empty() ? host_name() : boot, size);
  const auto here = std::count(machines.begin(), machines.end(), boot.empty() ? host_name() : boot);
  return {topology, static_cast<int>(here)};
}

}  // namespace sixfold::comm
