// Started by mpirun: a rank that is killed, exits, never comes, takes its time in a section, or forks; Worlds and
// groups that come and go. Every rank prints "PID n"; what goes wrong is at "FAULT t", seconds of the steady clock.
//
//   fault_check WHAT [--timeout S] [--flight-recorder DIR] [--rounds N] [--progress-thread auto|on|off]
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "runtime/comm/host/progress.h"
#include "runtime/comm/world.h"
#include "runtime/core/log.h"

namespace sixfold::test {
namespace {

constexpr int kFaulty = 2;

struct Arguments {
  std::string what;
  comm::WorldOptions world;
  int rounds = 200;
};

void say_fault() {
  std::printf("FAULT %.3f\n", comm::seconds_now());
  std::fflush(stdout);
}

void sleep_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

comm::Work all_reduce(comm::Communicator& group, std::vector<float>& x) {
  comm::Options options;
  options.tag = "dp.grads";
  options.algorithm = comm::Algorithm::Ring;
  const comm::Buf buf(x.data(), x.size(), DType::F32);
  return group.all_reduce(buf, buf, ReduceOp::Max, options);
}

/// Three all-reduces of which the last one never ends, because of what rank 2 does inside ("kill", and "busy", where
/// the others do not wait for it), or instead.
void lose_a_rank(comm::World& world, const std::string& what) {
  std::vector<float> x(1 << 20, 1.0f);
  all_reduce(world.group(), x).wait();
  all_reduce(world.group(), x).wait();
  if (world.rank() == kFaulty) {
    sleep_s(0.3);  // the others wait by now
    say_fault();
    if (what == "exit") std::exit(0);
    if (what == "never") sleep_s(60);
    if (what == "leave") return;
    all_reduce(world.group(), x);
    raise(SIGKILL);
  }
  if (what == "busy") sleep_s(60);  // never looks at the others
  all_reduce(world.group(), x).wait();
}

/// The other ranks wait for three times their deadline.
void save(comm::World& world, double timeout_s) {
  std::vector<float> x(1000, 1.0f);
  if (world.rank() == 0) {
    const comm::World::Section section(world, "save");
    sleep_s(3 * timeout_s);
  }
  all_reduce(world.group(), x).wait();
}

/// All-reduces without end.
void spin(comm::World& world) {
  std::vector<float> x(100000, 1.0f);
  for (int64_t i = 0;; ++i) {
    all_reduce(world.group(), x).wait();
    if (i == 10 && world.rank() == 0) say_fault();
  }
}

int count_entries(const char* folder) {
  DIR* dir = opendir(folder);
  int count = 0;
  while (dir != nullptr && readdir(dir) != nullptr) ++count;
  if (dir != nullptr) closedir(dir);
  return count;
}

int count_lines(const char* path) {
  std::ifstream file(path);
  int count = 0;
  for (std::string line; std::getline(file, line);) ++count;
  return count;
}

/// Groups that are made, used and destroyed in changing order, moved from, and destroyed with operations in flight.
void split_round(comm::World& world, int round) {
  std::vector<float> x(1000, 1.0f), y(1000, 1.0f);
  std::vector<comm::Communicator> groups;
  groups.push_back(world.group().split(0, 0));
  groups.push_back(world.group().split(world.rank() % 2, -world.rank()));
  groups.push_back(groups[0].split(0, 0));
  comm::Work first = all_reduce(groups[0], x);
  all_reduce(groups[1], y);
  if (round % 2 == 0) groups.erase(groups.begin());  // with an operation in flight
  comm::Communicator moved = std::move(groups.back());
  moved.barrier();
  if (round % 3 == 0) std::swap(groups.front(), groups.back());
  first = comm::Work();
}

void split_rounds(comm::World& world, int rounds) {
  int descriptors = 0, mappings = 0;
  for (int round = 0; round < rounds; ++round) {
    split_round(world, round);
    if (round == rounds / 5) {
      descriptors = count_entries("/proc/self/fd");
      mappings = count_lines("/proc/self/maps");
    }
  }
  world.group().barrier();
  const int more_descriptors = count_entries("/proc/self/fd") - descriptors;
  const int more_mappings = count_lines("/proc/self/maps") - mappings;
  std::printf("GREW %d descriptors, %d mappings\n", more_descriptors, more_mappings);
  if (more_descriptors != 0 || more_mappings != 0) throw std::runtime_error("groups leave something behind");
}

/// 1e6 sums of one integer, each checked.
void sum_integers(comm::World& world, int rounds) {
  const int n = world.size();
  int64_t wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    int32_t x = world.rank() + round % 1000;
    world.group().all_reduce({&x, 1, DType::I32}, {&x, 1, DType::I32}, ReduceOp::Sum).wait();
    wrong += x != n * (n - 1) / 2 + n * (round % 1000);
  }
  std::printf("SUMS %d, %lld wrong\n", rounds, static_cast<long long>(wrong));
  if (wrong != 0) throw std::runtime_error("wrong sums");
}

/// Children that exit, end by a signal, unwind out of the World's body, or become another program.
void fork_children(comm::World& world) {
  std::vector<float> x(100000, 1.0f);
  for (int i = 0; i < 4; ++i) {
    comm::Work work = all_reduce(world.group(), x);
    const pid_t child = fork();
    if (child == 0) {
      if (i == 0) std::exit(0);
      if (i == 1) raise(SIGTERM);
      if (i == 2) throw std::runtime_error("in a child");
      execl("/bin/true", "true", nullptr);
      _exit(1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (i == 1 && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM)) log_error("the child outlived SIGTERM");
    work.wait();
    all_reduce(world.group(), x).wait();
  }
  std::printf("FORKED\n");
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  arguments.world.timeout_s = 30;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] {
      if (++i == argc) throw ConfigError(word + ": needs a value");
      return std::string(argv[i]);
    };
    if (word == "--timeout") {
      arguments.world.timeout_s = std::stod(value());
    } else if (word == "--flight-recorder") {
      arguments.world.flight_recorder_dir = value();
    } else if (word == "--progress-thread") {
      arguments.world.progress_thread = comm::parse_progress_thread(value());
    } else if (word == "--rounds") {
      arguments.rounds = std::stoi(value());
    } else {
      arguments.what = word;
    }
  }
  return arguments;
}

void run(comm::World& world, const Arguments& arguments) {
  std::printf("PID %d\n", static_cast<int>(getpid()));
  std::fflush(stdout);
  if (arguments.what == "section") return save(world, arguments.world.timeout_s);
  if (arguments.what == "spin") return spin(world);
  if (arguments.what == "splits") return split_rounds(world, arguments.rounds);
  if (arguments.what == "sums") return sum_integers(world, arguments.rounds);
  if (arguments.what == "fork") return fork_children(world);
  lose_a_rank(world, arguments.what);
}

}  // namespace
}  // namespace sixfold::test

int main(int argc, char** argv) {
  using namespace sixfold;
  try {
    const test::Arguments arguments = test::parse(argc, argv);
    comm::run_world(arguments.world, [&](comm::World& world) { test::run(world, arguments); });
  } catch (const ConfigError& error) {
    log_error(error.what());
    return 2;
  }
  return 0;
}
