// HostStepper: runs one rank's lists where no kernel may wait, because the GPU is shared by processes and may never run
// two of their kernels at once. The lists, the links and the pieces are those of the interpreter; but the host looks at
// the flags, which lie in its memory, launches a kernel that moves one slice and ends, and raises the flags once the
// device has done it.
//
// Programs have one split. Each channel has one slice under way.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/comm/cuda/peer_arena.h"
#include "runtime/comm/cuda/program_image.h"

namespace sixfold::comm {

class HostStepper {
 public:
  /// One end of a link. tail and head as in BlockLink, of memory that both ends see; moved: this end's own count, kept
  /// from one operation to the next.
  struct Link {
    std::atomic<uint64_t>* tail = nullptr;
    std::atomic<uint64_t>* head = nullptr;
    uint64_t* moved = nullptr;
  };
  using LinkOf = std::function<Link(uint32_t channel, uint8_t connection, bool sends)>;
  /// Launches one slice; the mark is done when its data are where they belong, for other processes, too.
  using Issue = std::function<std::shared_ptr<DeviceMark>(const SliceOrder&)>;

  /// `image` outlives it.
  HostStepper(const ProgramImage& image, LinkOf link_of, Issue issue);

  /// Does what can be done without waiting; true when anything moved. Throws what the device throws.
  bool advance();
  bool done() const;

 private:
  struct Channel {
    uint32_t number = 0;
    uint64_t pass = 0;
    uint32_t instruction = 0, slice = 0;  // slice: of it, done
    std::optional<ChunkWalk> walk;        // what is left of the instruction; none: at the end
    Link from, to;                        // of the instruction; null where it has none
    std::shared_ptr<DeviceMark> moving;   // the next slice, launched
  };

  const InstructionList& list_of(const Channel& channel) const;
  const Instruction& instruction_of(const Channel& channel) const;
  void settle(Channel& channel);
  void begin(Channel& channel);
  bool is_ready(const Channel& channel) const;
  bool advance(Channel& channel);

  const ProgramImage& image_;
  LinkOf link_of_;
  Issue issue_;
  std::vector<Channel> channels_;
};

}  // namespace sixfold::comm
