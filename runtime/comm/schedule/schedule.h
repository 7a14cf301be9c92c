// A collective is a schedule: the list of steps that one rank carries out.
//
// Builders (pure functions, one file an algorithm) write it; the host executor runs it, verify() proves it, and the
// simulator prices it. No algorithm knows a transport, and no transport knows an algorithm. The parts of a Step are
// those of NCCL's fused primitives (recv, send, copy, reduce and their combinations), left out where not needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sixfold::comm {

enum class Primitive : uint8_t {
  Broadcast,
  Reduce,
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Send,
  Recv,
  Barrier
};
/// The six that strategies are composed of.
inline constexpr Primitive kCollectives[] = {Primitive::Broadcast, Primitive::Reduce,        Primitive::AllReduce,
                                             Primitive::AllGather, Primitive::ReduceScatter, Primitive::AllToAll};
std::string_view primitive_name(Primitive primitive);
/// Throws ConfigError with the allowed names (the six collectives).
Primitive parse_primitive(std::string_view name);

enum class Algorithm : uint8_t {
  Auto,
  Ring,
  Tree,
  Direct,
  Pairwise,
  Binomial,
  DoubleTree,
  RecursiveDoubling,
  HalvingDoubling,
  SpreadOut,
  Hierarchical
};
inline constexpr Algorithm kAlgorithms[] = {Algorithm::Ring,
                                            Algorithm::Tree,
                                            Algorithm::Direct,
                                            Algorithm::Pairwise,
                                            Algorithm::Binomial,
                                            Algorithm::DoubleTree,
                                            Algorithm::RecursiveDoubling,
                                            Algorithm::HalvingDoubling,
                                            Algorithm::SpreadOut,
                                            Algorithm::Hierarchical};
std::string_view algorithm_name(Algorithm algorithm);
/// Throws ConfigError with the allowed names.
Algorithm parse_algorithm(std::string_view name);

/// Input and Output are the caller's buffers; Scratch (dtype of the call) and Accum (f32 for bf16 and f16, else the
/// dtype) belong to the executor, hold one pass and are reused by the next one.
enum class Buffer : uint8_t { Input, Output, Scratch, Accum };

/// Elements [offset, offset + count) of a buffer; count 0 with `used` false means "no operand".
struct Slice {
  Buffer buffer = Buffer::Input;
  size_t offset = 0;
  size_t count = 0;
  bool used = false;

  bool operator==(const Slice&) const = default;
  static Slice of(Buffer buffer, size_t offset, size_t count) { return {buffer, offset, count, true}; }
};

inline constexpr int kNoPeer = -1;
inline constexpr int kNoStep = -1;

/// One fused action on `count()` elements; any part may be absent.
///
///   value = op(received, src) or op(dst, src) when `reduce`, else whichever of received and src there is
///   value is stored to dst, and sent to send_peer
struct Step {
  int recv_peer = kNoPeer;
  int send_peer = kNoPeer;
  Slice src = {};       // local operand
  Slice dst = {};       // local result
  bool reduce = false;  // op(received, src); op(dst, src) where nothing is received
  bool finish = false;  // last touch of these elements: scale them (average), once per element
  int channel = 0;      // steps of one channel run in order, channels side by side
  int after = kNoStep;  // index of a step of another channel whose same slice must be done first

  // Where peers reach each other's buffers, a link need not carry the bytes. What a builder promises here, verify()
  // proves; a transport may stage all the same.
  bool stays = false;  // of a copy out of Input or Output: src is not written before the receiver has read it
  Slice lands = {};    // of what is sent: the receiver's dst, in its Output, which nobody there touches from the moment
                       // that the sender gets here until the receive

  size_t count() const { return src.used ? src.count : dst.count; }
};

struct Schedule {
  std::vector<Step> steps;   // in order within each channel
  int num_channels = 1;      // channels 0 .. num_channels - 1
  size_t scratch_count = 0;  // elements of Scratch that one pass needs
  size_t accum_count = 0;    // elements of Accum that one pass needs
};

class Topology;

/// What a builder is asked for: one pass of one collective, for one rank.
///
/// `count` is, in elements: the whole buffer (Broadcast, Reduce, AllReduce) or the block of one rank (AllGather: the
/// input; ReduceScatter: the output; AllToAll: what goes to one peer). A pass covers [pass_offset, pass_offset +
/// pass_count) of that count: of the buffer, or of each block. Builders write absolute offsets into Input and Output.
struct Call {
  Primitive primitive = Primitive::AllReduce;
  int rank = 0;
  int size = 1;
  int root = 0;  // Broadcast, Reduce
  size_t count = 0;
  size_t pass_offset = 0;
  size_t pass_count = 0;
  /// Input and Output overlap as MPI_IN_PLACE would have it: the same buffer; for AllGather Input is block `rank` of
  /// Output, for ReduceScatter Output is block `rank` of Input.
  bool in_place = false;
  /// Where the ranks live; nullptr: all on one node. The ring follows it, hierarchical needs it. Outlives the call.
  const Topology* topology = nullptr;
  /// Blocks of different size, for builders of which supports_counts() is true; outlives the call. Blocks lie one after
  /// another, `count` is the largest, and a pass covers [pass_offset, pass_offset + pass_count) of each block as far as
  /// the block goes. AllGather, ReduceScatter: (*counts)[r] is the size of rank r's block. AllToAll: a size x size
  /// matrix, (*counts)[r * size + p] is what r sends to p; rank r reads row and column r only. AllToAll in place has no
  /// such form.
  const std::vector<size_t>* counts = nullptr;
  /// What links hold of one step, as in max_pass_count(). Where it is given, builders may move several blocks in one
  /// step up to this many elements; with 0 a step moves one block at most. The same on all ranks.
  size_t step_capacity = 0;
};

/// Writes the steps of one pass. Any size >= 1, any count including 0. With size 1 the result copies (and finishes)
/// Input to Output, or is empty in place: the sum, and the average, of one is itself.
using Builder = Schedule (*)(const Call& call);

/// nullptr where the algorithm does not exist for the primitive.
Builder find_builder(Primitive primitive, Algorithm algorithm);
/// Whether the algorithm exists for the primitive in a group that lives on `topology` (nullptr: on one node of unknown
/// shape). hierarchical needs a topology with the same number of ranks on each node. Asked before a builder is called.
bool builder_applies(Primitive primitive, Algorithm algorithm, const Topology* topology);
/// Algorithms for which builder_applies(), in the order of kAlgorithms.
std::vector<Algorithm> algorithms_of(Primitive primitive, const Topology* topology = nullptr);
/// Whether the builder takes Call::counts.
bool supports_counts(Primitive primitive, Algorithm algorithm);

/// Whether AllReduce `direct` on `count` elements in all sends everything to everyone, which takes half as many rounds,
/// rather than reduces in parts and gathers them, which sends less. Never asked of a pass: all passes are alike.
bool is_one_shot(size_t count, int size);
/// One shot up to this many elements that all ranks together send to all: count N^2. 8192 each for two ranks, for which
/// one shot sends no more than two do, 512 each for eight.
inline constexpr size_t kOneShotCount = 32768;

/// The largest pass_count with which no step moves more than `step_capacity` elements. `count` and `topology` as in
/// Call; with count 0, good for every count.
size_t max_pass_count(Primitive primitive, Algorithm algorithm, int size, size_t step_capacity, size_t count = 0,
                      const Topology* topology = nullptr);

/// Elements [begin, end) of part `index` when `count` elements are cut into `parts` nearly equal parts: every part has
/// ceil or floor of count / parts elements, the larger ones first.
struct Range {
  size_t begin = 0, end = 0;
  size_t count() const { return end - begin; }
};
Range part_of(size_t count, int parts, int index);

/// Elements that Input and Output of each rank must hold where all blocks have `count` elements. Reduce: Output only on
/// the root. Broadcast: Input is read on the root only.
size_t input_count(Primitive primitive, size_t count, int size);
size_t output_count(Primitive primitive, size_t count, int size);
/// The same for call.rank, with or without Call::counts.
size_t input_count(const Call& call);
size_t output_count(const Call& call);
/// Where block `index` lies in `buffer`, in full: of AllGather's Output, ReduceScatter's Input, AllToAll's Input and
/// Output.
Range block_range(const Call& call, Buffer buffer, int index);
/// Reduce, AllReduce, ReduceScatter: the results are reduced and finished.
bool reduces(Primitive primitive);

/// One line per step: "ch0  recv 3, reduce Input[0,16), send 1". For --explain and for error texts.
std::string to_string(const Step& step);

}  // namespace sixfold::comm
