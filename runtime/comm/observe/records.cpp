#include "runtime/comm/observe/records.h"

#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>

#include "runtime/comm/observe/clock.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

constexpr int kExchanges = 32;

Buf bytes_of(void* data, size_t size) {
  return {data, size, DType::U8};
}

/// Values one after another as bytes, for ranks that run one program.
class Writer {
 public:
  template <typename T>
  void value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    append(&value, sizeof(T));
  }
  template <typename T>
  void list(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    value(values.size());
    append(values.data(), values.size() * sizeof(T));
  }
  void text(std::string_view text) {
    value(text.size());
    append(text.data(), text.size());
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  void append(const void* data, size_t size) {
    const auto* first = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), first, first + size);
  }
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(const std::vector<std::byte>& bytes) : bytes_(bytes) {}
  template <typename T>
  T value() {
    T value;
    take(&value, sizeof(T));
    return value;
  }
  template <typename T>
  std::vector<T> list() {
    std::vector<T> values(value<size_t>());
    take(values.data(), values.size() * sizeof(T));
    return values;
  }
  std::string text() {
    std::string text(value<size_t>(), '\0');
    take(text.data(), text.size());
    return text;
  }

 private:
  void take(void* data, size_t size) {
    SIXFOLD_CHECK_LE(at_ + size, bytes_.size(), "bytes of a rank's records");
    if (size > 0) std::memcpy(data, bytes_.data() + at_, size);
    at_ += size;
  }
  const std::vector<std::byte>& bytes_;
  size_t at_ = 0;
};

std::vector<std::byte> pack(const RankRecords& records) {
  Writer out;
  out.value(records.rank);
  out.value(records.clock_offset_s);
  out.value(records.num_dropped);
  out.value(records.groups.size());
  for (const LoggedGroup& group : records.groups) {
    out.text(group.name);
    out.list(group.members);
  }
  out.value(records.rows.size());
  for (const LoggedRow& row : records.rows) {
    out.text(row.tag);
    out.text(row.backend);
    out.value(row.primitive);
    out.value(row.algorithm);
    out.value(row.group_size);
  }
  out.value(records.units.size());
  for (const std::string& unit : records.units) out.text(unit);
  out.list(records.operations);
  out.list(records.exposed);
  out.list(records.spans);
  return std::move(out.bytes());
}

RankRecords unpack(const std::vector<std::byte>& bytes) {
  Reader in(bytes);
  RankRecords records;
  records.rank = in.value<int>();
  records.clock_offset_s = in.value<double>();
  records.num_dropped = in.value<uint64_t>();
  records.groups.resize(in.value<size_t>());
  for (LoggedGroup& group : records.groups) {
    group.name = in.text();
    group.members = in.list<int>();
  }
  records.rows.resize(in.value<size_t>());
  for (LoggedRow& row : records.rows) {
    row.tag = in.text();
    row.backend = in.text();
    row.primitive = in.value<Primitive>();
    row.algorithm = in.value<Algorithm>();
    row.group_size = in.value<int>();
  }
  records.units.resize(in.value<size_t>());
  for (std::string& unit : records.units) unit = in.text();
  records.operations = in.list<LoggedOperation>();
  records.exposed = in.list<ExposedInterval>();
  records.spans = in.list<ComputeSpan>();
  return records;
}

void shift(RankRecords& records, double offset_s) {
  records.clock_offset_s = offset_s;
  if (offset_s == 0) return;
  for (LoggedOperation& operation : records.operations) {
    for (double* time : {&operation.enqueued_s, &operation.started_s, &operation.ended_s}) {
      if (*time != 0) *time += offset_s;
    }
  }
  for (ExposedInterval& interval : records.exposed) {
    interval.start_s += offset_s;
    interval.end_s += offset_s;
  }
  for (ComputeSpan& span : records.spans) {
    span.start_s += offset_s;
    span.end_s += offset_s;
  }
}

/// By rank 0: what makes times of `peer`'s clock its own. The quickest exchange leaves the least doubt.
ClockOffset compare_clocks(Communicator& group, int peer) {
  ClockOffset best{0, std::numeric_limits<double>::infinity()};
  for (int i = 0; i < kExchanges; ++i) {
    double there = 0;
    const double before = seconds_now();
    group.send(bytes_of(&there, sizeof(there)), peer, {.tag = "clock"}).wait();
    group.recv(bytes_of(&there, sizeof(there)), peer, {.tag = "clock"}).wait();
    const double after = seconds_now();
    if ((after - before) / 2 < best.error_s) best = {(before + after) / 2 - there, (after - before) / 2};
  }
  return best;
}

void show_clock(Communicator& group) {
  for (int i = 0; i < kExchanges; ++i) {
    double now = 0;
    group.recv(bytes_of(&now, sizeof(now)), 0, {.tag = "clock"}).wait();
    now = seconds_now();
    group.send(bytes_of(&now, sizeof(now)), 0, {.tag = "clock"}).wait();
  }
}

}  // namespace

ClockOffset measure_clock_offset(World& world) {
  const Topology& hosts = world.hosts();
  if (!hosts.spans_nodes()) return {};
  Communicator group = world.open_group(BackendKind::Host, false);
  std::vector<ClockOffset> offsets(static_cast<size_t>(hosts.num_nodes()));
  for (int host = 0; host < hosts.num_nodes(); ++host) {
    const int first = hosts.ranks_of(host).front();
    if (host == hosts.node_of(0)) continue;
    if (world.rank() == 0) offsets[static_cast<size_t>(host)] = compare_clocks(group, first);
    if (world.rank() == first) show_clock(group);
  }
  group.broadcast(bytes_of(offsets.data(), offsets.size() * sizeof(ClockOffset)), 0, {.tag = "clock"}).wait();
  return offsets[static_cast<size_t>(hosts.node_of(world.rank()))];
}

std::vector<RankRecords> gather_records(World& world, const ClockOffset& offset) {
  SIXFOLD_CHECK(world.comm_log() != nullptr, "records of a World without logs");
  world.comm_log()->stop();
  RankRecords own = world.comm_log()->records(world.rank());
  shift(own, offset.seconds);
  Communicator group = world.open_group(BackendKind::Host, false);
  std::vector<std::byte> bytes;
  if (world.rank() > 0) bytes = pack(own);
  const auto size = static_cast<int64_t>(bytes.size());
  std::vector<int64_t> sizes(static_cast<size_t>(world.size()));
  group.all_gather({&size, 1, DType::I64}, {sizes.data(), sizes.size(), DType::I64}, {.tag = "records"}).wait();
  if (world.rank() > 0) {
    group.send(bytes_of(bytes.data(), bytes.size()), 0, {.tag = "records"}).wait();
    return {};
  }
  std::vector<RankRecords> all = {std::move(own)};
  for (int rank = 1; rank < world.size(); ++rank) {
    bytes.resize(static_cast<size_t>(sizes[static_cast<size_t>(rank)]));
    group.recv(bytes_of(bytes.data(), bytes.size()), rank, {.tag = "records"}).wait();
    all.push_back(unpack(bytes));
  }
  return all;
}

}  // namespace sixfold::comm
