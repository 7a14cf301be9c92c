// verify names the fault of every broken schedule. That it passes what is right: verify_builders_test.
#include <algorithm>

#include "tests/verify_harness.h"

namespace sixfold::comm {
namespace {

using BuildFunction = std::function<Schedule(const Call&)>;
using BreakFunction = std::function<void(const Call&, Schedule&)>;

/// The report on a builder whose schedules are changed by `break_it`; one pass of `call`, slots that hold all of it.
VerifyReport verify_changed(const Call& call, Algorithm algorithm, const BreakFunction& break_it) {
  const Builder builder = find_builder(call.primitive, algorithm);
  EXPECT_TRUE(verify(call, builder, 4, 64, 64).ok()) << "right before it is broken";
  const BuildFunction broken = [&](const Call& pass) {
    Schedule schedule = builder(pass);
    break_it(pass, schedule);
    return schedule;
  };
  return verify(call, broken, 4, 64, 64);
}

/// As verify_changed, with everything staged: promises about bytes in place, which would break first, are dropped.
VerifyReport verify_broken(const Call& call, Algorithm algorithm, const BreakFunction& break_it) {
  return verify_changed(call, algorithm, [&](const Call& pass, Schedule& schedule) {
    for (Step& step : schedule.steps) {
      step.stays = false;
      step.lands = {};
    }
    break_it(pass, schedule);
  });
}

BreakFunction on_rank(int rank, const std::function<void(std::vector<Step>&)>& change) {
  return [=](const Call& call, Schedule& schedule) {
    if (call.rank == rank) change(schedule.steps);
  };
}

void erase_step(std::vector<Step>& steps, size_t index) {
  steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(index));
}

TEST(BrokenSchedule, MissingSendIsADeadlock) {
  const VerifyReport report = verify_broken(make_call(Primitive::AllGather, 4, 8), Algorithm::Direct,
                                            on_rank(2, [](auto& steps) { erase_step(steps, 1); }));
  EXPECT_EQ(report.fault, Fault::Deadlock) << report.detail;
  EXPECT_NE(report.detail.find("deadlock: rank 0, channel 0, pass 0, step 4 (ch0  recv 2"), std::string::npos)
      << report.detail;
  EXPECT_TRUE(report.sent_elements.empty());
}

TEST(BrokenSchedule, MissingReceiveIsALeftover) {
  const VerifyReport report = verify_broken(make_call(Primitive::AllGather, 4, 8), Algorithm::Direct,
                                            on_rank(1, [](auto& steps) { steps.pop_back(); }));
  EXPECT_EQ(report.fault, Fault::Leftover) << report.detail;
  EXPECT_NE(report.detail.find("rank 2 sent 1 slices that rank 1 never received"), std::string::npos) << report.detail;
}

TEST(BrokenSchedule, MissingExchangeLeavesOutputUnwritten) {
  const VerifyReport report =
      verify_broken(make_call(Primitive::AllGather, 4, 8), Algorithm::Direct, [](const Call& call, Schedule& schedule) {
        const int peer = call.rank == 1 ? 3 : call.rank == 3 ? 1 : kNoPeer;
        if (peer == kNoPeer) return;
        std::erase_if(schedule.steps, [&](const Step& s) { return s.recv_peer == peer || s.send_peer == peer; });
      });
  EXPECT_EQ(report.fault, Fault::MissingAdd) << report.detail;
  EXPECT_NE(report.detail.find("rank 1, Output element 24: was never written"), std::string::npos) << report.detail;
}

TEST(BrokenSchedule, MissingAddition) {
  const VerifyReport report =
      verify_broken(make_call(Primitive::Reduce, 4, 8, 2), Algorithm::Direct, on_rank(2, [](auto& steps) {
                      std::erase_if(steps, [](const Step& s) { return s.reduce && s.recv_peer == kNoPeer; });
                    }));
  EXPECT_EQ(report.fault, Fault::MissingAdd) << report.detail;
  EXPECT_NE(report.detail.find("lacks the contribution of rank 2"), std::string::npos) << report.detail;
}

TEST(BrokenSchedule, DoubleAddition) {
  const VerifyReport report =
      verify_broken(make_call(Primitive::Reduce, 4, 8, 2), Algorithm::Direct, on_rank(2, [](auto& steps) {
                      const auto own = std::find_if(steps.begin(), steps.end(),
                                                    [](const Step& s) { return s.reduce && s.recv_peer == kNoPeer; });
                      steps.insert(own, Step(*own));
                    }));
  EXPECT_EQ(report.fault, Fault::DoubleAdd) << report.detail;
  EXPECT_NE(report.detail.find("contribution of rank 2"), std::string::npos) << report.detail;
}

TEST(BrokenSchedule, ReceivingFirstEverywhereIsADeadlock) {
  const VerifyReport report =
      verify_broken(make_call(Primitive::AllGather, 4, 8), Algorithm::Ring,
                    [](const Call&, Schedule& schedule) { std::swap(schedule.steps[0], schedule.steps[1]); });
  EXPECT_EQ(report.fault, Fault::Deadlock) << report.detail;
}

TEST(BrokenSchedule, StepsThatTheSlotsCannotHoldAreADeadlock) {
  const Builder builder = find_builder(Primitive::ReduceScatter, Algorithm::Ring);
  const Call call = make_call(Primitive::ReduceScatter, 3, 12);
  EXPECT_TRUE(verify(call, builder, 4, 1, 3).ok());
  EXPECT_EQ(verify(call, builder, 2, 1, 3).fault, Fault::Deadlock);
}

TEST(BrokenSchedule, SizeMismatch) {
  const VerifyReport report = verify_broken(make_call(Primitive::AllGather, 3, 8), Algorithm::Direct,
                                            on_rank(1, [](auto& steps) { --steps[1].src.count; }));
  EXPECT_EQ(report.fault, Fault::SizeMismatch) << report.detail;
  EXPECT_NE(report.detail.find("expects 8 elements, got 7"), std::string::npos) << report.detail;
}

TEST(BrokenSchedule, ReadBeforeWrite) {
  const VerifyReport report = verify_broken(make_call(Primitive::AllToAll, 4, 8, 0, true), Algorithm::Pairwise,
                                            on_rank(3, [](auto& steps) { erase_step(steps, 0); }));
  EXPECT_EQ(report.fault, Fault::ReadBeforeWrite) << report.detail;
  EXPECT_NE(report.detail.find("rank 3, channel 0, pass 0"), std::string::npos) << report.detail;
}

TEST(BrokenSchedule, WhatAPassLeftInScratchIsNotReadable) {
  const Builder builder = find_builder(Primitive::AllToAll, Algorithm::Pairwise);
  const BuildFunction broken = [&](const Call& call) {
    Schedule schedule = builder(call);
    if (call.pass_offset > 0) erase_step(schedule.steps, 0);
    return schedule;
  };
  const VerifyReport report = verify(make_call(Primitive::AllToAll, 3, 8, 0, true), broken, 4, 64, 4);
  EXPECT_EQ(report.fault, Fault::ReadBeforeWrite) << report.detail;
  EXPECT_NE(report.detail.find("pass 1"), std::string::npos) << report.detail;
}

// Nothing holds channel 0 up here, so it is done first nearly always; but nothing says that it is.
TEST(BrokenSchedule, ChannelThatIsUsuallyBehind) {
  const auto racing = [](bool waits) {
    return [waits](const Call& call) {
      Schedule schedule;
      schedule.num_channels = 2;
      const Slice input = Slice::of(Buffer::Input, 0, call.count), output = Slice::of(Buffer::Output, 0, call.count);
      if (call.rank == call.root) {
        schedule.steps.push_back({.src = input, .dst = output, .channel = 0});
        schedule.steps.push_back({.send_peer = 1, .src = output, .channel = 1, .after = waits ? 0 : kNoStep});
      } else {
        schedule.steps.push_back({.recv_peer = 0, .dst = output, .channel = 1});
      }
      return schedule;
    };
  };
  const Call call = make_call(Primitive::Broadcast, 2, 8);
  EXPECT_TRUE(verify(call, racing(true), 2, 2, 64).ok());
  EXPECT_EQ(verify(call, racing(false), 2, 2, 64).fault, Fault::Race);
}

TEST(BrokenSchedule, ChannelThatDoesNotWait) {
  const BreakFunction no_wait = on_rank(0, [](auto& steps) {
    for (Step& step : steps) step.after = kNoStep;
  });
  const Call call = make_call(Primitive::AllReduce, 4, 8);
  EXPECT_EQ(verify_broken(call, Algorithm::Tree, no_wait).fault, Fault::ReadBeforeWrite);
  const Call in_place = make_call(Primitive::AllReduce, 4, 8, 0, true);
  EXPECT_EQ(verify_broken(in_place, Algorithm::Tree, no_wait).fault, Fault::Race);
}

TEST(BrokenSchedule, WrongPlace) {
  const VerifyReport report = verify_broken(
      make_call(Primitive::AllGather, 4, 8), Algorithm::Direct,
      on_rank(0, [](auto& steps) { std::swap(steps[steps.size() - 1].dst, steps[steps.size() - 2].dst); }));
  EXPECT_EQ(report.fault, Fault::WrongElement) << report.detail;
}

TEST(BrokenSchedule, AddingDifferentElements) {
  const VerifyReport report = verify_broken(make_call(Primitive::ReduceScatter, 4, 8), Algorithm::Ring,
                                            on_rank(3, [](auto& steps) { steps[0].src.offset = 0; }));
  EXPECT_EQ(report.fault, Fault::WrongElement) << report.detail;
}

TEST(BrokenSchedule, BuiltForSeparateBuffersButRunInPlace) {
  const BuildFunction unaware = [](const Call& call) {
    Call separate = call;
    separate.in_place = false;
    Schedule schedule = find_builder(Primitive::AllToAll, Algorithm::Pairwise)(separate);
    for (Step& step : schedule.steps) step.stays = false, step.lands = {};
    return schedule;
  };
  const VerifyReport report = verify(make_call(Primitive::AllToAll, 4, 8, 0, true), unaware, 4, 64, 64);
  EXPECT_EQ(report.fault, Fault::WrongElement) << report.detail;
}

TEST(BrokenSchedule, NeverScaled) {
  const VerifyReport report =
      verify_broken(make_call(Primitive::AllReduce, 3, 8), Algorithm::Ring, [](const Call& call, Schedule& schedule) {
        for (Step& step : schedule.steps) step.finish &= call.rank != 1;
      });
  EXPECT_EQ(report.fault, Fault::Unfinished) << report.detail;
  EXPECT_NE(report.detail.find("never scaled"), std::string::npos) << report.detail;
}

TEST(BrokenSchedule, ScaledTwice) {
  const VerifyReport report = verify_broken(make_call(Primitive::AllReduce, 3, 8), Algorithm::Ring,
                                            on_rank(1, [](auto& steps) { steps.back().finish = true; }));
  EXPECT_EQ(report.fault, Fault::Unfinished) << report.detail;
  EXPECT_NE(report.detail.find("a second time"), std::string::npos) << report.detail;
}

TEST(BrokenSchedule, ScaledTooEarly) {
  const VerifyReport report = verify_broken(make_call(Primitive::ReduceScatter, 3, 8), Algorithm::Ring,
                                            on_rank(1, [](auto& steps) { steps[0].finish = true; }));
  EXPECT_EQ(report.fault, Fault::Unfinished) << report.detail;
  EXPECT_NE(report.detail.find("after it was scaled"), std::string::npos) << report.detail;
}

TEST(BrokenSchedule, ScaledWithoutReduction) {
  const VerifyReport report = verify_broken(make_call(Primitive::Broadcast, 3, 8), Algorithm::Tree,
                                            on_rank(1, [](auto& steps) { steps[0].finish = true; }));
  EXPECT_EQ(report.fault, Fault::Unfinished) << report.detail;
}

TEST(BrokenSchedule, UnsoundSteps) {
  const auto fault_of = [](const std::function<void(Step&)>& change) {
    // Rank 0 at the top of the tree: step 2 is the first one down, which waits for step 1.
    const VerifyReport report = verify_broken(make_call(Primitive::AllReduce, 4, 8), Algorithm::Tree,
                                              on_rank(0, [&](auto& steps) { change(steps[2]); }));
    EXPECT_NE(report.detail.find("out of range: rank 0"), std::string::npos) << report.detail;
    return report.fault;
  };
  EXPECT_EQ(fault_of([](Step& step) { step.src.offset += 1; }), Fault::OutOfRange);
  EXPECT_EQ(fault_of([](Step& step) { step.src.offset = SIZE_MAX; }), Fault::OutOfRange);
  EXPECT_EQ(fault_of([](Step& step) { step.src.buffer = Buffer::Scratch; }), Fault::OutOfRange);
  EXPECT_EQ(fault_of([](Step& step) { step.dst = Slice::of(Buffer::Input, 0, 8); }), Fault::OutOfRange);
  EXPECT_EQ(fault_of([](Step& step) { step.src = {}; }), Fault::OutOfRange);
  EXPECT_EQ(fault_of([](Step& step) { step.reduce = true; }), Fault::OutOfRange);
  EXPECT_EQ(fault_of([](Step& step) { step.send_peer = 4; }), Fault::OutOfRange);
  EXPECT_EQ(fault_of([](Step& step) { step.send_peer = 0; }), Fault::OutOfRange);
  EXPECT_EQ(fault_of([](Step& step) { step.channel = 2; }), Fault::OutOfRange);
  EXPECT_EQ(fault_of([](Step& step) { step.after = 99; }), Fault::OutOfRange);
  EXPECT_EQ(fault_of([](Step& step) { step.after = 3; }), Fault::OutOfRange);
}

TEST(BrokenSchedule, OnlyTheRootHasAnOutputToReduceInto) {
  const VerifyReport report =
      verify_broken(make_call(Primitive::Reduce, 3, 8, 1), Algorithm::Direct,
                    on_rank(0, [](auto& steps) { steps[0].dst = Slice::of(Buffer::Output, 0, 8); }));
  EXPECT_EQ(report.fault, Fault::OutOfRange) << report.detail;
}

TEST(BrokenSchedule, SentTwiceIsCounted) {
  const Call call = make_call(Primitive::AllGather, 3, 8);
  const Builder builder = find_builder(Primitive::AllGather, Algorithm::Direct);
  const BuildFunction twice = [&](const Call& pass) {
    Schedule schedule = builder(pass);
    const auto repeat = [&](size_t index) {
      const Step step = schedule.steps[index];
      schedule.steps.insert(schedule.steps.begin() + static_cast<std::ptrdiff_t>(index), step);
    };
    if (pass.rank == 1) repeat(0);  // its send to rank 2
    if (pass.rank == 2) repeat(2);  // the receive from rank 1
    for (Step& step : schedule.steps) step.stays = false, step.lands = {};
    return schedule;
  };
  const VerifyReport report = verify(call, twice, 4, 64, 64);
  EXPECT_TRUE(report.ok()) << report.detail;  // the result is right all the same
  EXPECT_EQ(report.sent_elements, (std::vector<size_t>{16, 24, 16}));
}

// ---- Promises about bytes that stay in place -----------------------------------------------------------------------

TEST(BrokenPromise, OverwrittenBeforeItIsRead) {
  // In place, ranks 0 and 2 exchange blocks in round 2, each sending first: neither knows when the other has read.
  const VerifyReport report =
      verify_changed(make_call(Primitive::AllToAll, 4, 8, 0, true), Algorithm::Pairwise, on_rank(2, [](auto& steps) {
                       for (Step& step : steps) step.stays |= step.send_peer == 0;
                     }));
  EXPECT_EQ(report.fault, Fault::Race) << report.detail;
  EXPECT_NE(report.detail.find("element 0 of rank 2"), std::string::npos) << report.detail;
}

TEST(BrokenPromise, OneShotInPlaceMayNotLend) {
  const VerifyReport report = verify_changed(make_call(Primitive::AllReduce, 3, 8, 0, true), Algorithm::Direct,
                                             [](const Call&, Schedule& schedule) {
                                               for (Step& step : schedule.steps)
                                                 step.stays |= step.send_peer != kNoPeer;
                                             });
  EXPECT_EQ(report.fault, Fault::Race) << report.detail;
}

TEST(BrokenPromise, LandsWhereTheReceiverStillReads) {
  // The right neighbour has its own block there, which it sends; nothing says that it has done so.
  const VerifyReport report =
      verify_changed(make_call(Primitive::AllToAll, 3, 8, 0, true), Algorithm::Pairwise, on_rank(0, [](auto& steps) {
                       for (Step& step : steps) {
                         if (step.send_peer == 1) step.lands = Slice::of(Buffer::Output, 0, 8);
                       }
                     }));
  EXPECT_EQ(report.fault, Fault::Race) << report.detail;
}

TEST(BrokenPromise, LandsElsewhere) {
  const VerifyReport report = verify_changed(make_call(Primitive::AllGather, 4, 8), Algorithm::Direct,
                                             on_rank(1, [](auto& steps) { steps[0].lands.offset += 16; }));
  EXPECT_EQ(report.fault, Fault::WrongLanding) << report.detail;
  EXPECT_NE(report.detail.find("rank 2, channel 0"), std::string::npos) << report.detail;
}

TEST(BrokenPromise, Unsound) {
  const auto fault_of = [](const std::function<void(Step&)>& change) {
    return verify_changed(make_call(Primitive::AllGather, 3, 8), Algorithm::Direct,
                          on_rank(1, [&](auto& steps) { change(steps[0]); }))
        .fault;
  };
  EXPECT_EQ(fault_of([](Step& step) { step.lands.offset = 17; }), Fault::OutOfRange);
  EXPECT_EQ(fault_of([](Step& step) { step.lands.count = 7; }), Fault::OutOfRange);
  EXPECT_EQ(fault_of([](Step& step) { step.lands.buffer = Buffer::Scratch; }), Fault::OutOfRange);
  EXPECT_EQ(fault_of([](Step& step) { step.dst = {}, step.finish = true; }), Fault::OutOfRange);
}

TEST(Verify, RefusesWhatItCannotTellApart) {
  const Builder builder = find_builder(Primitive::AllGather, Algorithm::Ring);
  EXPECT_THROW(verify(make_call(Primitive::AllGather, 65, 1), builder, 2, 1, 1), CheckError);
  EXPECT_THROW(verify(make_call(Primitive::AllGather, 2, 1), builder, 1, 1, 1), CheckError);
}

TEST(Verify, NamesEveryFault) {
  std::vector<std::string> names;
  for (int fault = 0; fault <= static_cast<int>(Fault::OutOfRange); ++fault) {
    names.emplace_back(fault_name(static_cast<Fault>(fault)));
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  EXPECT_EQ(std::count(names.begin(), names.end(), "unknown"), 0);
}

}  // namespace
}  // namespace sixfold::comm
