// Patience: how long one wait of a rank may last. Every wait of a World has one, so that none is a silent hang.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/host/failure.h"

namespace sixfold::comm {

/// What a rank waits for.
class Awaited {
 public:
  virtual ~Awaited() = default;
  /// "all_reduce #17 (dp.grads)", for error texts.
  virtual std::string describe() const = 0;
  /// Why it may be stuck: which ranks never entered it. Throws CommError when it sees that two ranks disagree about
  /// what it is. Called by slow waits.
  virtual std::string diagnose() const = 0;
  /// Ranks of the World, on this host, that it cannot end without and that have not come: those that never entered the
  /// collective, or have not matched the message. Empty where that cannot be seen. Called by slow waits.
  virtual std::vector<int> awaited_ranks() const { return {}; }
};

class Patience {
 public:
  /// `failure` outlives it.
  Patience(Failure& failure, double timeout_s, double now_s)
      : failure_(failure), timeout_s_(timeout_s), since_s_(now_s), next_look_s_(now_s + kLookEvery) {}
  /// Something has moved, or waiting begins.
  void restart(double now_s) {
    since_s_ = warned_s_ = now_s;
    next_look_s_ = now_s + kLookEvery;
    seen_leaving_ = false;
  }
  bool is_time_to_look(double now_s) const { return now_s >= next_look_s_; }
  /// While nothing moves. Fails the World (CommError) when a rank's process has ended, when a rank that `awaited` needs
  /// has left, when two ranks disagree, or when nothing has moved for the time-out; the time that another rank spends
  /// in a section (World::Section) does not count, but is said once per time-out.
  void look(const Awaited& awaited, double now_s);
  /// Tells all ranks, then throws CommError on this one. `ranks` as Failure::raise.
  [[noreturn]] static void fail(Failure& failure, const std::string& reason, const std::vector<int>& ranks = {});

 private:
  static constexpr double kLookEvery = 0.25;  // seconds

  void check_peers(const Awaited& awaited);
  bool is_excused(const Awaited& awaited, double now_s);

  Failure& failure_;
  double timeout_s_;
  double since_s_, next_look_s_;
  double warned_s_ = since_s_;
  bool seen_leaving_ = false;  // at the look before
};

}  // namespace sixfold::comm
