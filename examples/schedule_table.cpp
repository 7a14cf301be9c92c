// Prints the table of algorithms of README.md: rounds and bytes of every schedule as theory has them, and as verify()
// counts them in a replay. No options.
#include <algorithm>
#include <cstdio>
#include <string>

#include "runtime/comm/schedule/topology.h"
#include "runtime/comm/schedule/verify.h"
#include "runtime/core/error.h"

namespace sixfold::comm {
namespace {

/// What the files of the builders say. N ranks, M nodes of n ranks, P the largest power of two up to N, S the bytes of
/// the full buffer.
struct Formula {
  Primitive primitive;
  Algorithm algorithm;
  const char* rounds;
  const char* sent;
};

constexpr Formula kFormulas[] = {
    {Primitive::Broadcast, Algorithm::Ring, "N-1", "S"},
    {Primitive::Broadcast, Algorithm::Tree, "<= 2 floor(log2 N)", "<= 2 S"},
    {Primitive::Broadcast, Algorithm::Direct, "N-1", "root (N-1) S"},
    {Primitive::Broadcast, Algorithm::Binomial, "ceil(log2 N)", "root ceil(log2 N) S"},
    {Primitive::Broadcast, Algorithm::DoubleTree, "<= 2 floor(log2 N) + 2", "<= S"},
    {Primitive::Broadcast, Algorithm::Hierarchical, "<= M + n - 2", "<= 2 S"},
    {Primitive::Reduce, Algorithm::Ring, "N-1", "S"},
    {Primitive::Reduce, Algorithm::Tree, "<= 2 floor(log2 N)", "S"},
    {Primitive::Reduce, Algorithm::Direct, "N-1", "S"},
    {Primitive::Reduce, Algorithm::Binomial, "ceil(log2 N)", "S"},
    {Primitive::Reduce, Algorithm::DoubleTree, "<= 2 floor(log2 N) + 2", "S"},
    {Primitive::Reduce, Algorithm::Hierarchical, "<= M + n - 2", "S"},
    {Primitive::AllReduce, Algorithm::Ring, "2(N-1)", "2(N-1)/N S"},
    {Primitive::AllReduce, Algorithm::Tree, "<= 4 floor(log2 N)", "<= 3 S"},
    {Primitive::AllReduce, Algorithm::Direct, "2(N-1)", "2(N-1)/N S"},
    {Primitive::AllReduce, Algorithm::DoubleTree, "<= 4 floor(log2 N)", "<= 2 S"},
    {Primitive::AllReduce, Algorithm::RecursiveDoubling, "log2 P, + 2 if N > P", "log2 P S, + S if N > P"},
    {Primitive::AllReduce, Algorithm::HalvingDoubling, "2 log2 P, + 2 if N > P", "2(P-1)/P S, + S if N > P"},
    {Primitive::AllReduce, Algorithm::Hierarchical, "2(n-1) + 2(M-1)", "2(n-1)/n S + 2(M-1)/M S/n"},
    {Primitive::AllGather, Algorithm::Ring, "N-1", "(N-1)/N S"},
    {Primitive::AllGather, Algorithm::Direct, "N-1", "(N-1)/N S"},
    {Primitive::AllGather, Algorithm::RecursiveDoubling, "ceil(log2 N)", "(N-1)/N S"},
    {Primitive::AllGather, Algorithm::HalvingDoubling, "log2 P, + 3 if N > P", "(N-1)/N S on average"},
    {Primitive::AllGather, Algorithm::Hierarchical, "M(n-1) + M-1", "M(n-1)/N S + (M-1)/N S"},
    {Primitive::ReduceScatter, Algorithm::Ring, "N-1", "(N-1)/N S"},
    {Primitive::ReduceScatter, Algorithm::Direct, "N-1", "(N-1)/N S"},
    {Primitive::ReduceScatter, Algorithm::HalvingDoubling, "log2 P, + 3 if N > P", "(N-1)/N S on average"},
    {Primitive::ReduceScatter, Algorithm::Hierarchical, "M(n-1) + M-1", "M(n-1)/N S + (M-1)/N S"},
    {Primitive::AllToAll, Algorithm::Pairwise, "N-1", "(N-1)/N S"},
    {Primitive::AllToAll, Algorithm::SpreadOut, "N-1", "(N-1)/N S"},
    {Primitive::AllToAll, Algorithm::Hierarchical, "N-1, M-1 between nodes", "M(n-1)/N S + (M-1)/M S"},
};
constexpr Formula kOneShot = {Primitive::AllReduce, Algorithm::Direct, "N-1", "(N-1) S"};

// Elements of the full buffer: they divide by 8, by two halves of 8 parts, and are too many for one shot.
constexpr size_t kFullCount = 3360;
constexpr size_t kOneShotFullCount = 480;

const Formula& formula_of(Primitive primitive, Algorithm algorithm) {
  const auto* found = std::find_if(std::begin(kFormulas), std::end(kFormulas), [&](const Formula& f) {
    return f.primitive == primitive && f.algorithm == algorithm;
  });
  SIXFOLD_CHECK(found != std::end(kFormulas), "no formula for " + std::string(primitive_name(primitive)) + " " +
                                                  std::string(algorithm_name(algorithm)));
  return *found;
}

/// "1.75 S"
std::string in_full_buffers(size_t elements, size_t full_count) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g S", static_cast<double>(elements) / static_cast<double>(full_count));
  return text;
}

/// "14, 1.75 S": the rounds, and what the rank that sends most sends; on nodes "8, 1.5 S + 0.25 S": inside and between.
std::string counted(const Formula& formula, int size, size_t full_count, const Topology* topology) {
  Call call;
  call.primitive = formula.primitive;
  call.size = size;
  call.topology = topology;
  const bool blocks =
      input_count(call.primitive, 1, 2) != output_count(call.primitive, 1, 2) || input_count(call.primitive, 1, 2) == 2;
  call.count = blocks ? full_count / static_cast<size_t>(size) : full_count;
  call.step_capacity = full_count;
  const VerifyReport report =
      verify(call, find_builder(formula.primitive, formula.algorithm), 2, full_count, full_count);
  SIXFOLD_CHECK(report.ok(), report.detail);

  std::string text = std::to_string(report.rounds) + ", ";
  if (topology == nullptr) {
    return text +
           in_full_buffers(*std::max_element(report.sent_elements.begin(), report.sent_elements.end()), full_count);
  }
  SentByLink most{};
  for (const SentByLink& sent : report.sent_by_link) {
    for (size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], sent[i]);
  }
  return text + in_full_buffers(most[0], full_count) + " + " + in_full_buffers(most[1], full_count);
}

void print_row(const Formula& formula, const std::string& algorithm, size_t full_count) {
  std::string four, eight;
  if (formula.algorithm == Algorithm::Hierarchical) {
    const Topology two_by_two = Topology::parse("2x2", 4), two_by_four = Topology::parse("2x4", 8);
    four = counted(formula, 4, full_count, &two_by_two);
    eight = counted(formula, 8, full_count, &two_by_four);
  } else {
    four = counted(formula, 4, full_count, nullptr);
    eight = counted(formula, 8, full_count, nullptr);
  }
  std::printf("| %s | %s | %s | %s | %s | %s |\n", std::string(primitive_name(formula.primitive)).c_str(),
              algorithm.c_str(), formula.rounds, formula.sent, four.c_str(), eight.c_str());
}

void print_table() {
  std::printf("| primitive | algorithm | rounds | sent per rank | 4 ranks (2x2) | 8 ranks (2x4) |\n");
  std::printf("|---|---|---|---|---|---|\n");
  const Topology any = Topology::one_node(2);
  for (Primitive primitive : kCollectives) {
    for (Algorithm algorithm : algorithms_of(primitive, &any)) {
      const std::string name(algorithm_name(algorithm));
      const bool two_ways = primitive == Primitive::AllReduce && algorithm == Algorithm::Direct;
      if (two_ways) print_row(kOneShot, name + ", one shot", kOneShotFullCount);
      print_row(formula_of(primitive, algorithm), two_ways ? name + ", two shots" : name, kFullCount);
    }
  }
}

}  // namespace
}  // namespace sixfold::comm

int main() {
  sixfold::comm::print_table();
  return 0;
}
