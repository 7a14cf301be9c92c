// Closed forms: what the simulation of cost.h comes to, as formulas in latency alpha, bandwidth beta and reduction rate
// gamma, for groups that are too large to be simulated. N = M n ranks, node by node, n on each of M nodes.
//
// Written without the builders and without the simulation, so that each is a check of the other (closed_form_test
// compares them). Textbook formulas are for messages that travel as one slice and for one node; here messages are cut
// into slices of at most a slot, long buffers into passes, and nodes share network cards, so the formulas name what
// bounds each phase: the latency of the hops, the busiest port, the compute, or the credits of a link.
//
// Where additions are faster than the links they are within a percent of the simulation for ring, chain, all-to-all
// exchanges, and whatever travels as one slice on one node. Estimates, up to a third off: trees whose passes overlap or
// whose flows meet in the cards of several nodes, direct sums whose passes get out of step or whose ranks have cards of
// their own, groups that fold surplus ranks. Copies are taken to cost nothing.
#pragma once

#include "runtime/comm/schedule/cost.h"

namespace sixfold::comm {

/// What is to be priced. `count` as in Call, root 0, not in place.
struct CostQuery {
  Primitive primitive = Primitive::AllReduce;
  Algorithm algorithm = Algorithm::Ring;
  int num_nodes = 1;
  int ranks_per_node = 1;
  size_t count = 0;
  size_t element_bytes = 4;
  LinkShape links;

  int size() const { return num_nodes * ranks_per_node; }
};

/// Whether there is a formula for the primitive and the algorithm.
bool has_closed_form(Primitive primitive, Algorithm algorithm);

/// Seconds until the last rank is done. CheckError where there is no formula.
double closed_form_seconds(const CostQuery& query, const Profile& profile);

struct Prediction {
  double seconds = 0;
  bool simulated = false;  // else by closed form
};

/// Groups up to this size are simulated.
inline constexpr int kMaxSimulatedRanks = 256;
/// ... unless that takes more slices than this: about a third of a second.
inline constexpr double kMaxSimulatedSlices = 1e6;

/// By simulation where it takes at most `max_slices` slices (an estimate), else by closed form. The choice depends on
/// nothing but the query and max_slices. CheckError where the algorithm does not exist for the primitive.
Prediction predict_seconds(const CostQuery& query, const Profile& profile, double max_slices = kMaxSimulatedSlices);

}  // namespace sixfold::comm
