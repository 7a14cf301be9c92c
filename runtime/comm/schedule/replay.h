// Replay: carries the schedules of all ranks out on symbols instead of numbers. The machine below verify(), which alone
// includes this.
#pragma once

#include <bitset>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/comm/schedule/races.h"
#include "runtime/comm/schedule/verify.h"

namespace sixfold::comm {

using RankSet = std::bitset<kMaxVerifyRanks>;

/// What one element of a buffer, or of a message, holds: the sum of element `index` of some ranks' Inputs. One bit a
/// rank is enough, because adding a contribution for a second time is a fault at once.
struct Symbol {
  RankSet ranks;  // none: nothing was written yet
  size_t index = 0;
  int pass = 0;           // Scratch, Accum: the pass that wrote it; its content does not outlive the pass
  bool finished = false;  // was scaled
};

/// Thrown where the replay finds a fault; verify() turns it into its report.
struct FaultFound {
  Fault fault;
  std::string detail;
};

/// In which order ranks and channels are given their turns, between sweeps over all of them.
enum class Order : uint8_t {
  ChannelsUp,     // each rank runs channel 0 until it blocks, then channel 1, ...
  ChannelsDown,   // ... the last channel first
  Alternating,    // one slice of each channel in turn
  RanksReversed,  // as ChannelsUp, the last rank first
};
inline constexpr Order kOrders[] = {Order::ChannelsUp, Order::ChannelsDown, Order::Alternating, Order::RanksReversed};

class Replay {
 public:
  /// passes[p][r] is the schedule of pass p on rank r; `call` as given to verify(). All three outlive the Replay.
  Replay(const Call& call, const std::vector<std::vector<Schedule>>& passes, int num_slots, size_t slot_elements);

  /// Runs all passes to their end and looks at the result. Throws FaultFound. Called once.
  void run(Order order);
  const std::vector<size_t>& sent_elements() const { return sent_elements_; }
  const std::vector<SentByLink>& sent_by_link() const { return sent_by_link_; }

 private:
  /// Where a channel of a rank stands. A channel goes on to its next pass without waiting for the others.
  struct Cursor {
    int rank = 0, channel = 0;
    size_t pass = 0, step = 0, slice = 0;
  };
  /// What goes with the symbols of a slot.
  struct Message {
    size_t count = 0;  // elements
    Cursor sender;     // where it was sent
    RaceDetector::Clock clock;
  };
  struct Link {
    std::vector<Symbol> symbols;    // num_slots slots; allocated at first use
    std::vector<Message> messages;  // by slot
    size_t tail = 0, head = 0;      // slots filled and emptied so far
  };
  struct Memory {
    std::vector<Symbol> input_memory, output_memory, scratch, accum;
    Symbol* input = nullptr;  // in place, these two point into the same memory
    Symbol* output = nullptr;
    size_t input_count = 0, output_count = 0;  // that steps may touch
    size_t first_element = 0;                  // the RaceDetector's number of the first of all these symbols
  };

  void lay_out_memory(int rank);
  size_t buffer_count(int rank, const Schedule& schedule, Buffer buffer) const;
  void check_step(const Cursor& at, const Schedule& schedule, const Step& step) const;
  void check_all_steps() const;

  const Schedule& schedule_at(const Cursor& at) const;
  const Step& step_at(const Cursor& at) const { return schedule_at(at).steps[at.step]; }
  bool settle(Cursor& cursor) const;
  bool run_rank(int rank, Order order);
  bool advance(Cursor& cursor);
  void move_slice(const Cursor& at, const Step& step, Link* from, Link* to);
  void begin_event(const Cursor& at, const Step& step, Link* from);
  void check_receive_in_place(const Cursor& at, const Step& step, const Message& message);
  void check_access(const Cursor& at, int owner, const Slice& slice, size_t element, bool writes);
  size_t actor(const Cursor& at) const { return static_cast<size_t>(at.rank * num_channels_ + at.channel); }
  size_t element_number(int rank, const Symbol& symbol) const;
  Symbol value_of(const Cursor& at, const Step& step, const Symbol* received, size_t element);
  Symbol& element_of(const Cursor& at, const Slice& slice, size_t element);
  const Symbol& read(const Cursor& at, const Slice& slice, size_t element);
  void write(const Cursor& at, const Slice& slice, size_t element, const Symbol& value);
  Symbol add(const Cursor& at, const Symbol& a, const Symbol& b) const;
  Link& link(int sender, int receiver, int channel);

  void check_all_done() const;
  void check_nothing_left() const;
  void check_results(int rank) const;
  [[noreturn]] void fail(Fault fault, const Cursor& at, const std::string& what) const;

  const Call& call_;
  const std::vector<std::vector<Schedule>>& passes_;
  size_t num_slots_, slot_elements_;
  int num_channels_ = 1;
  std::vector<Memory> memory_;                // per rank
  std::vector<std::vector<Cursor>> cursors_;  // per rank and channel
  std::vector<Link> links_;                   // per sender, receiver and channel
  std::vector<size_t> sent_elements_;         // per rank
  RaceDetector races_;
  /// Clocks of slices that another channel waits for, by rank, pass, step and slice.
  std::map<std::tuple<int, size_t, size_t, size_t>, RaceDetector::Clock> awaited_clocks_;
  std::vector<SentByLink> sent_by_link_;  // per rank, with a topology
};

}  // namespace sixfold::comm
