// Every rank of an AllReduce ends with the same bits, whatever the dtype: with the same additions, rounded at the same
// places. Schedules are carried out on names of values instead of numbers; two values have the same name where they are
// the same function of the ranks' inputs.
#include <deque>
#include <map>
#include <tuple>

#include "tests/verify_harness.h"

namespace sixfold::comm {
namespace {

/// A sum of floats, named. Addition commutes but does not associate; what leaves Accum is rounded to the dtype.
struct Value {
  uint64_t name = 0;
  bool rounded = true;
  bool operator==(const Value&) const = default;
};

uint64_t mix(uint64_t x) {  // the finalizer of SplitMix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
Value add(const Value& a, const Value& b) {
  return {mix(mix(a.name) + mix(b.name)), false};
}
Value round_to_dtype(const Value& v) {
  return v.rounded ? v : Value{mix(v.name + 1), true};
}

/// All ranks of one pass, on links without end.
class Machine {
 public:
  explicit Machine(Call call, Builder builder) {
    call.pass_count = call.count;
    for (call.rank = 0; call.rank < call.size; ++call.rank) {
      Rank& rank = ranks_.emplace_back();
      rank.schedule = builder(call);
      rank.done.assign(rank.schedule.steps.size(), false);
      rank.buffers[Buffer::Output].resize(call.count);
      rank.buffers[Buffer::Accum].resize(rank.schedule.accum_count);
      rank.buffers[Buffer::Scratch].resize(rank.schedule.scratch_count);
      for (size_t i = 0; i < call.count; ++i) {
        rank.buffers[Buffer::Input].push_back({mix(1000 * i + static_cast<uint64_t>(call.rank) + 7), true});
      }
    }
  }

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        for (int channel = 0; channel < ranks_[rank].schedule.num_channels; ++channel) {
          while (run_step(static_cast<int>(rank), channel)) moved = true;
        }
      }
    }
  }
  const std::vector<Value>& output(size_t rank) { return ranks_[rank].buffers[Buffer::Output]; }
  bool all_done() const {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const Rank& rank) { return std::count(rank.done.begin(), rank.done.end(), false) == 0; });
  }

 private:
  struct Rank {
    Schedule schedule;
    std::vector<bool> done;
    std::map<Buffer, std::vector<Value>> buffers;
  };
  using Message = std::vector<Value>;

  bool run_step(int number, int channel) {
    Rank& rank = ranks_[static_cast<size_t>(number)];
    size_t at = 0;
    while (at < rank.done.size() && (rank.done[at] || rank.schedule.steps[at].channel != channel)) ++at;
    if (at == rank.done.size()) return false;
    const Step& step = rank.schedule.steps[at];
    if (step.after != kNoStep && !rank.done[static_cast<size_t>(step.after)]) return false;
    Message values;
    if (step.recv_peer != kNoPeer) {
      std::deque<Message>& link = links_[{step.recv_peer, number, channel}];
      if (link.empty()) return false;
      values = link.front();
      link.pop_front();
    }
    const auto local = [&](const Slice& slice, size_t i) { return rank.buffers[slice.buffer][slice.offset + i]; };
    for (size_t i = 0; step.recv_peer == kNoPeer && i < step.count(); ++i) {
      values.push_back(local(step.reduce ? step.dst : step.src, i));
    }
    for (size_t i = 0; i < step.count(); ++i) {
      if (step.reduce) values[i] = add(values[i], local(step.src, i));
      if (!step.dst.used) continue;
      const bool keeps = step.dst.buffer == Buffer::Accum;
      rank.buffers[step.dst.buffer][step.dst.offset + i] = keeps ? values[i] : round_to_dtype(values[i]);
    }
    if (step.send_peer != kNoPeer) {
      for (Value& value : values) value = round_to_dtype(value);
      links_[{number, step.send_peer, channel}].push_back(values);
    }
    rank.done[at] = true;
    return true;
  }

  std::vector<Rank> ranks_;
  std::map<std::tuple<int, int, int>, std::deque<Message>> links_;  // sender, receiver, channel
};

void expect_same_bits(const Call& call, Algorithm algorithm) {
  Machine machine(call, find_builder(call.primitive, algorithm));
  machine.run();
  ASSERT_TRUE(machine.all_done());
  for (size_t rank = 1; rank < static_cast<size_t>(call.size); ++rank) {
    ASSERT_EQ(machine.output(rank).size(), machine.output(0).size());
    ASSERT_TRUE(std::equal(machine.output(rank).begin(), machine.output(rank).end(), machine.output(0).begin()))
        << describe(call, algorithm) << " rank " << rank;
  }
}

TEST(AllReduceBits, AreTheSameOnAllRanks) {
  for (Algorithm algorithm : algorithms_of(Primitive::AllReduce)) {
    for (int size = 2; size <= 17; ++size) {
      for (size_t count : {size_t{1}, size_t{37}, size_t{8192}}) {
        expect_same_bits(make_call(Primitive::AllReduce, size, count), algorithm);
      }
    }
  }
}

TEST(AllReduceBits, AreTheSameOnAllNodes) {
  for (const char* text : {"1x6", "2x3", "3x2", "6x1", "2x4", "4x4"}) {
    const Topology topology = Topology::parse(text, (text[0] - '0') * (text[2] - '0'));
    for (Algorithm algorithm : algorithms_of(Primitive::AllReduce, &topology)) {
      Call call = make_call(Primitive::AllReduce, topology.size(), 101);
      call.topology = &topology;
      expect_same_bits(call, algorithm);
    }
  }
}

// That the names can tell: a rank that keeps its own sum unrounded where its partner gets a rounded one.
TEST(AllReduceBits, WouldDifferWithSumsKeptInAccum) {
  const auto in_accum = [](const Call& call) {
    Schedule schedule;
    schedule.accum_count = call.count;
    const Slice accum = Slice::of(Buffer::Accum, 0, call.count), output = Slice::of(Buffer::Output, 0, call.count);
    const int near = call.rank ^ 1, far = call.rank ^ 2;
    schedule.steps.push_back({.send_peer = near, .src = Slice::of(Buffer::Input, 0, call.count)});
    schedule.steps.push_back(
        {.recv_peer = near, .src = Slice::of(Buffer::Input, 0, call.count), .dst = accum, .reduce = true});
    schedule.steps.push_back({.send_peer = far, .src = accum});
    schedule.steps.push_back({.recv_peer = far, .src = accum, .dst = output, .reduce = true, .finish = true});
    return schedule;
  };
  Machine machine(make_call(Primitive::AllReduce, 4, 3), in_accum);
  machine.run();
  ASSERT_TRUE(machine.all_done());
  EXPECT_EQ(machine.output(0), machine.output(1));
  EXPECT_NE(machine.output(0), machine.output(2));
}

}  // namespace
}  // namespace sixfold::comm
