#include "runtime/comm/mpi/mpi_links.h"

#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "runtime/comm/mpi/mpi_types.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

constexpr int kNoticeTag = 0;
constexpr int kGroupTag = 1;
constexpr auto kAnnounceFor = std::chrono::milliseconds(200);

MPI_Comm communicator_of(MPI_Comm world, const std::vector<int>& members) {
  MPI_Group all = MPI_GROUP_NULL, part = MPI_GROUP_NULL;
  MPI_Comm communicator = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(world, &all), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &part), "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(world, part, kGroupTag, &communicator), "MPI_Comm_create_group");
  check_mpi(MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Group_free(&part);
  MPI_Group_free(&all);
  return communicator;
}

// A message is a slot and what precedes it but for the number, by which the carrier says that the message has come.
constexpr size_t kHeaderBytes = sizeof(SlotLine) - offsetof(SlotLine, header);

}  // namespace

/// One group's links. Requests of all its slots lie in one array, so that a poll is one call.
class MpiCarrier final : public LinkCarrier {
 public:
  MpiCarrier(MpiLinks& links, MPI_Comm communicator, const LinkOptions& options)
      : links_(links),
        communicator_(communicator),
        num_slots_(static_cast<uint64_t>(options.num_slots)),
        slot_bytes_(options.slot_bytes),
        max_message_bytes_(mpi_count(kHeaderBytes + options.slot_bytes)) {}

  ~MpiCarrier() override {
    const std::lock_guard lock(links_.mutex_);
    if (links_.failed()) {
      for (Link& link : ends_) links_.abandon(std::move(link.region));
      return;
    }
    // What is left are receives for messages that nobody will send.
    for (MPI_Request& request : requests_) {
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    // Collective by name only: implementations do it locally (MPI 3.1, section 6.4.3), and all messages have arrived.
    MPI_Comm_free(&communicator_);
  }

  LinkMemory link_to(int peer, int channel) override { return add(peer, channel, true); }
  LinkMemory link_from(int peer, int channel) override { return add(peer, channel, false); }

  bool poll() override {
    if (ends_.empty()) return false;
    const std::lock_guard lock(links_.mutex_);
    for (size_t i = 0; i < ends_.size(); ++i) hand_over(i);
    return take_back();
  }

 private:
  /// The carrier's end of a FIFO. Its slots 0, 1, ... go to MPI in order and are passed on in order.
  struct Link {
    std::shared_ptr<SharedRegion> region;
    LinkMemory memory;
    int peer = 0, channel = 0;
    bool sends = false;
    uint64_t num_given = 0;   // slots that MPI has been given
    uint64_t num_passed = 0;  // of those, slots passed on to the executor: emptied, or filled
  };

  LinkMemory add(int peer, int channel, bool sends) {
    Link& link = ends_.emplace_back();
    const int num_slots = static_cast<int>(num_slots_);
    link.region = SharedRegion::anonymous(LinkMemory::bytes(num_slots, slot_bytes_));
    link.memory = LinkMemory::at(link.region->data(), num_slots, slot_bytes_, LinkMemory::Layout::Messages);
    link.peer = peer;
    link.channel = channel;
    link.sends = sends;
    requests_.resize(ends_.size() * num_slots_, MPI_REQUEST_NULL);
    complete_.resize(requests_.size(), false);
    finished_.resize(requests_.size());
    return link.memory;
  }

  /// Gives MPI the slots that the executor has filled, or emptied.
  void hand_over(size_t index) {
    Link& link = ends_[index];
    const uint64_t emptied = link.memory.head->value.load(std::memory_order_acquire);
    for (; link.sends ? link.memory.is_filled(link.num_given) : link.num_given < emptied + num_slots_;
         ++link.num_given) {
      SlotHeader& slot = link.memory.line(link.num_given).header;
      MPI_Request& request = requests_[index * num_slots_ + link.num_given % num_slots_];
      if (link.sends) {
        const int bytes = static_cast<int>(kHeaderBytes + (slot.place == kInSlot ? slot.bytes : 0));
        check_mpi(MPI_Isend(&slot, bytes, MPI_BYTE, link.peer, link.channel, communicator_, &request), "MPI_Isend");
      } else {
        check_mpi(MPI_Irecv(&slot, max_message_bytes_, MPI_BYTE, link.peer, link.channel, communicator_, &request),
                  "MPI_Irecv");
      }
    }
  }

  /// Passes on what MPI is done with. Requests may end in any order, slots go in theirs.
  bool take_back() {
    int num_finished = 0;
    check_mpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &num_finished, finished_.data(),
                           MPI_STATUSES_IGNORE),
              "message between hosts");
    if (num_finished == MPI_UNDEFINED || num_finished == 0) return false;
    for (int i = 0; i < num_finished; ++i) {
      const auto request = static_cast<size_t>(finished_[static_cast<size_t>(i)]);
      complete_[request] = true;
      pass_on(request / num_slots_);
    }
    return true;
  }

  void pass_on(size_t index) {
    Link& link = ends_[index];
    while (link.num_passed < link.num_given) {
      const size_t request = index * num_slots_ + link.num_passed % num_slots_;
      if (!complete_[request]) break;
      complete_[request] = false;
      if (!link.sends) link.memory.set_filled(link.num_passed);
      ++link.num_passed;
    }
    if (link.sends) link.memory.head->value.store(link.num_passed, std::memory_order_release);
  }

  MpiLinks& links_;
  MPI_Comm communicator_;
  uint64_t num_slots_;
  size_t slot_bytes_;
  int max_message_bytes_;
  std::vector<Link> ends_;
  std::vector<MPI_Request> requests_;  // [link * num_slots + slot]
  std::vector<bool> complete_;         // done, and not passed on yet
  std::vector<int> finished_;          // what MPI_Testsome says
};

MpiLinks::MpiLinks(const Topology& hosts, AbortState& abort) : hosts_(hosts), abort_(abort) {
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &world_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(world_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Irecv(&notice_, sizeof(notice_), MPI_BYTE, MPI_ANY_SOURCE, kNoticeTag, world_, &notice_request_),
            "MPI_Irecv");
}

MpiLinks::~MpiLinks() {
  MPI_Cancel(&notice_request_);
  MPI_Wait(&notice_request_, MPI_STATUS_IGNORE);
  MPI_Comm_free(&world_);
}

std::unique_ptr<LinkCarrier> MpiLinks::open(const std::vector<int>& members, const LinkOptions& options) {
  const std::lock_guard lock(mutex_);
  return std::make_unique<MpiCarrier>(*this, communicator_of(world_, members), options);
}

bool MpiLinks::failed() const {
  return abort_.is_set() || std::uncaught_exceptions() > 0;
}

std::optional<AbortRelay::Notice> MpiLinks::poll() {
  const std::lock_guard lock(mutex_);
  if (notice_request_ == MPI_REQUEST_NULL) return std::nullopt;
  int arrived = 0;
  check_mpi(MPI_Test(&notice_request_, &arrived, MPI_STATUS_IGNORE), "notice of a failure");
  if (arrived == 0) return std::nullopt;
  return Notice{notice_.rank, notice_.text};
}

void MpiLinks::announce() {
  if (!abort_.is_set() || abort_.rank != rank_) return;
  const std::lock_guard lock(mutex_);
  if (std::exchange(announced_, true)) return;
  own_notice_.rank = rank_;
  std::memcpy(own_notice_.text, abort_.text, sizeof(own_notice_.text));
  std::vector<MPI_Request> requests;
  for (int peer = 0; peer < hosts_.size(); ++peer) {
    if (hosts_.node_of(peer) == hosts_.node_of(rank_)) continue;
    MPI_Request& request = requests.emplace_back(MPI_REQUEST_NULL);
    MPI_Isend(&own_notice_, sizeof(own_notice_), MPI_BYTE, peer, kNoticeTag, world_, &request);
  }
  const auto deadline = std::chrono::steady_clock::now() + kAnnounceFor;
  for (int done = 0; done == 0 && std::chrono::steady_clock::now() < deadline;) {
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace sixfold::comm
