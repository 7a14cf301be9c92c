#include "runtime/comm/schedule/races.h"

#include <algorithm>

namespace sixfold::comm {

RaceDetector::RaceDetector(size_t num_actors, size_t num_elements)
    : clocks_(num_actors, Clock(num_actors, 0)), elements_(num_elements) {}

void RaceDetector::join(size_t actor, const Clock& other) {
  Clock& mine = clocks_[actor];
  for (size_t i = 0; i < mine.size(); ++i) mine[i] = std::max(mine[i], other[i]);
}

bool RaceDetector::read(size_t actor, size_t element) {
  Element& e = elements_[element];
  const uint32_t now = clocks_[actor][actor];
  const auto own = std::find_if(e.reads.begin(), e.reads.end(), [&](const Access& a) { return a.actor == actor; });
  if (own == e.reads.end()) {
    e.reads.push_back({actor, now});
  } else {
    own->event = now;
  }
  return happened(e.last_write, actor);
}

bool RaceDetector::write(size_t actor, size_t element) {
  Element& e = elements_[element];
  const bool ordered =
      happened(e.last_write, actor) &&
      std::all_of(e.reads.begin(), e.reads.end(), [&](const Access& access) { return happened(access, actor); });
  e.reads.clear();
  e.last_write = {actor, clocks_[actor][actor]};
  return ordered;
}

}  // namespace sixfold::comm
