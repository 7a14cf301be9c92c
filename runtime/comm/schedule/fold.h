// Fold: how algorithms for powers of two serve any number of ranks. Only builders include this.
//
// With N = 2^k + surplus ranks, the first 2 * surplus ranks form pairs of neighbours, 0 and 1, 2 and 3, ... The odd one
// of each pair is surplus: it hands its data to the even one before and gets its result after. What remains are 2^k
// active ranks, numbered in the order of their ranks. Source: Thakur, Rabenseifner, Gropp, "Optimization of collective
// communication operations in MPICH", 2005, section 4 (Reduce and Allreduce).
#pragma once

#include <bit>

#include "runtime/comm/schedule/builders.h"

namespace sixfold::comm {

struct Fold {
  explicit Fold(const Call& call)
      : num_active(static_cast<int>(std::bit_floor(static_cast<unsigned>(call.size)))),
        num_surplus(call.size - num_active),
        is_surplus(call.rank < 2 * num_surplus && call.rank % 2 == 1),
        active(call.rank < 2 * num_surplus ? call.rank / 2 : call.rank - num_surplus),
        partner(call.rank < 2 * num_surplus ? call.rank ^ 1 : kNoPeer) {}

  /// The rank of an active number; of num_active: the size. An active rank and, where it has one, its surplus partner
  /// right after it end where the next active rank begins.
  int rank_of(int number) const { return number < num_surplus ? 2 * number : number + num_surplus; }

  int num_active, num_surplus;
  bool is_surplus;
  int active;   // number of this rank, or of its partner where this one is surplus
  int partner;  // the other rank of the pair, if any
};

/// AllReduce of a surplus rank: hands over its Input, gets the result.
Schedule surplus_all_reduce(const Call& call, const Fold& fold);
/// AllReduce of an active rank before: adds the Input of its surplus partner, if any. Returns where the sum is: Input
/// where nothing was added, else Output.
Buffer fold_in(const Call& call, const Fold& fold, Schedule& schedule);
/// And after: hands the result in Output to the partner, if any.
void fold_out(const Call& call, const Fold& fold, Schedule& schedule);

}  // namespace sixfold::comm
