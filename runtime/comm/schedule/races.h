// RaceDetector: does anything order two accesses to one element? Part of verify().
//
// Each channel of each rank is an actor with a vector clock. A slice is one event of its actor; a message, or a step
// that waits for another channel's, carries the clock along. Credits of links order things too, but are not counted on:
// a link may have more slots than the one that was replayed.
//
// Source: Flanagan, Freund, "FastTrack: efficient and precise dynamic race detection", 2009, section 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sixfold::comm {

class RaceDetector {
 public:
  using Clock = std::vector<uint32_t>;  // per actor: its last event that is known to have happened

  explicit RaceDetector(size_t num_actors = 0, size_t num_elements = 0);

  /// The next event of `actor` begins; messages received in it are joined before its accesses.
  void begin_event(size_t actor) { ++clocks_[actor][actor]; }
  const Clock& clock(size_t actor) const { return clocks_[actor]; }
  void join(size_t actor, const Clock& other);

  /// In the current event of `actor`. False when another actor's access is neither before nor after it for certain.
  bool read(size_t actor, size_t element);
  bool write(size_t actor, size_t element);

 private:
  struct Access {
    size_t actor;
    uint32_t event;
  };
  struct Element {
    Access last_write{0, 0};    // event 0: none
    std::vector<Access> reads;  // since then, one per actor
  };
  bool happened(const Access& access, size_t actor) const { return access.event <= clocks_[actor][access.actor]; }

  std::vector<Clock> clocks_;
  std::vector<Element> elements_;
};

}  // namespace sixfold::comm
