// heddle.h: the whole public C++ API of Heddle, and its thread contract. The only header that is installed.
//
// Heddle runs a model on one accelerator for any number of threads at once.
//
//   ```cpp
//   #include <heddle/heddle.h>
//   #include <thread>
//
//   int main() {
//     heddle::GraphBuilder graph("double");
//     auto x = graph.input("x", heddle::DType::f32, {"batch", 4});
//     graph.output(graph.add("Add", {x, x}), "y");
//     heddle::Model model = graph.build();
//
//     std::jthread other([&] { model({heddle::Tensor::of<float>({1, 4}, {1, 2, 3, 4})}); });
//     heddle::Tensor y = model({heddle::Tensor::of<float>({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})})[0];
//     return y.values<float>()[7] == 16.0F ? 0 : 1;
//   }
//   ```
//
// The thread contract
//   Every function and every const method here may be called from any number of threads at once, on the
//   same object too, unless its comment says otherwise. GraphBuilder is the exception: one thread builds. A
//   plain call, model(inputs), blocks until its results are ready. It orders nothing against other calls
//   and takes no stream of the caller's. Under a StreamGuard, or with CallOptions::stream, a call is
//   submitted to that stream: it runs after all that the stream was given before and may return before it
//   is over; Tensor::wait, Stream::synchronize or an Event say when. A tensor that crosses streams is
//   ordered by Heddle: a buffer knows its last write and the reads since, and every submission waits for
//   those it needs. Results belong to the caller; their memory has no other holder. Inputs must not be
//   written while a call that reads them is under way.
//
// Errors
//   Everything that fails throws Error; Error::code() says what kind it is, what() names the node or the
//   argument, what is wrong and what would be right. A failed call leaves nothing half-done; the model can
//   be called again. Destructors do not throw.
//
// Lifetime
//   Handles (Device, Model, Tensor, Stream, Event) are cheap to copy and share what they name. Objects may
//   be destroyed in any order and from any thread. A thread's lease of a stream ends with the thread. A
//   forked child cannot use a device its parent has used: every call there throws unavailable; start
//   children with spawn or exec. exit() may run while threads are inside calls: those end or throw
//   unavailable. A handler given to std::atexit may call a model if it was registered after the shapes it
//   uses had run once; otherwise it gets unavailable.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#if defined(__GNUC__)
#define HEDDLE_API __attribute__((visibility("default")))
#else
#define HEDDLE_API
#endif

#define HEDDLE_VERSION_MAJOR 0
#define HEDDLE_VERSION_MINOR 1
#define HEDDLE_VERSION_PATCH 0

namespace heddle {

// ---- errors

enum class ErrorCode : uint8_t {
  invalid = 1,      // the argument or the file is wrong: the same call fails again
  unsupported = 2,  // right, but Heddle or this device does not do it
  exhausted = 3,    // memory, streams or a queue are full: may work later
  unavailable = 4,  // closed, forked or shutting down
  deadline = 5,     // the timeout passed first
  cancelled = 6,    // the caller withdrew
  device_lost = 7,  // the device failed: what ran on it is lost
  internal = 8,     // a mistake of ours: please report it
};
HEDDLE_API std::string_view name(ErrorCode code);  // "invalid", ...

class HEDDLE_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message);
  ~Error() override;
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// Nothing: no limit. A wait for an asynchronous device that is lost without a report then never ends.
using Timeout = std::optional<std::chrono::nanoseconds>;

// ---- tensors

enum class DType : uint8_t { f32, f16, bf16, f64, i8, u8, i16, i32, i64, u16, u32, u64, boolean };
HEDDLE_API std::string_view name(DType dtype);  // "f32" ... "bool"
HEDDLE_API size_t size_of(DType dtype);         // bytes of one element

template <class T>
struct DTypeOf;  // float, double, int8_t to int64_t, uint8_t to uint64_t, bool
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::f32> {};
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::f64> {};
template <>
struct DTypeOf<int8_t> : std::integral_constant<DType, DType::i8> {};
template <>
struct DTypeOf<uint8_t> : std::integral_constant<DType, DType::u8> {};
template <>
struct DTypeOf<int16_t> : std::integral_constant<DType, DType::i16> {};
template <>
struct DTypeOf<int32_t> : std::integral_constant<DType, DType::i32> {};
template <>
struct DTypeOf<int64_t> : std::integral_constant<DType, DType::i64> {};
template <>
struct DTypeOf<uint16_t> : std::integral_constant<DType, DType::u16> {};
template <>
struct DTypeOf<uint32_t> : std::integral_constant<DType, DType::u32> {};
template <>
struct DTypeOf<uint64_t> : std::integral_constant<DType, DType::u64> {};
template <>
struct DTypeOf<bool> : std::integral_constant<DType, DType::boolean> {};

using Shape = std::vector<int64_t>;

class Device;
class Stream;
struct Internals;  // how the parts of libheddle reach each other; not for callers

// An n-dimensional array, up to 8 dimensions: a window on memory of Heddle's or of the caller's. Copying a
// Tensor shares the memory.
class HEDDLE_API Tensor {
 public:
  Tensor() = default;  // no tensor; only assignment and the destructor may follow

  static Tensor zeros(DType dtype, const Shape& shape);
  template <class T>
  static Tensor of(const Shape& shape, std::initializer_list<T> values) {
    return copy_of(shape, DTypeOf<T>::value, values.begin(), values.size());
  }
  template <class T>
  static Tensor of(const Shape& shape, std::span<const T> values) {
    return copy_of(shape, DTypeOf<T>::value, values.data(), values.size());
  }
  // The caller's memory, not copied. It must live as long as any Tensor on it: `keep`, when given, is held
  // that long. Strides count elements, may be zero or negative; empty: contiguous.
  static Tensor borrow(const void* data, DType dtype, const Shape& shape, const Shape& strides = {},
                       std::shared_ptr<const void> keep = nullptr);
  // The same, to be written to.
  static Tensor borrow_mutable(void* data, DType dtype, const Shape& shape, const Shape& strides = {},
                               std::shared_ptr<const void> keep = nullptr);
  // Memory of another library on `device`, without a copy: `keep` owns it. What `stream`, one of that
  // library's, was given so far may still write it (null: nothing does). unsupported where a device shares no
  // memory, as its streams are of no type that others know: a cudaStream_t on "cuda".
  static Tensor lend(void* data, DType dtype, const Shape& shape, const Shape& strides, const Device& device,
                     std::shared_ptr<const void> keep, void* stream = nullptr);
  // Memory of the device, as results have; what it holds is undefined.
  static Tensor empty(DType dtype, const Shape& shape, const Device& device);
  // Memory of the host that the device reads and writes where it lies; what it holds is undefined. On "cuda"
  // it is page-locked: Stream::copy() between it and the device goes on by itself after the call. Until it is
  // over, nobody may write the source or use the target. With unified memory: as empty(). Any thread; blocks
  // as long as the driver allocates. exhausted: no memory; unavailable: the device is closed, or this is a
  // forked child.
  static Tensor pinned(DType dtype, const Shape& shape, const Device& device);

  explicit operator bool() const { return rep_ != nullptr; }
  DType dtype() const;
  Shape shape() const;
  Shape strides() const;  // in elements
  int64_t elements() const;
  bool is_contiguous() const;

  // The first element, on the host. Waits until the tensor is ready. Strides apply. Unsupported for memory
  // that the host cannot address: Stream::copy() brings it to a tensor of the host.
  const void* data() const;
  // To write to: waits until nothing given so far reads or writes the memory. Invalid for memory that was
  // borrowed as const.
  void* mutable_data();
  // Where the device finds it, without waiting: only to tell tensors apart and to compute offsets.
  const void* address() const;
  // Another window on the same memory; its first element lies `offset` bytes after this one's. invalid where
  // it leaves memory of Heddle's; for a caller's memory that is the caller's care.
  Tensor view(DType dtype, const Shape& shape, const Shape& strides, int64_t offset) const;
  // The elements of a contiguous tensor of this type; invalid otherwise. Waits until it is ready.
  template <class T>
  std::span<const T> values() const {
    return {static_cast<const T*>(checked_data(DTypeOf<T>::value)), static_cast<size_t>(elements())};
  }

  bool ready() const;                     // is the work that writes it over
  void wait(Timeout timeout = {}) const;  // blocks until then; throws the failure of that work, or deadline
  // For kernels Heddle does not see: its memory is not reused before the work given to `stream` so far ends.
  void record_stream(const Stream& stream) const;
  // For another library that reads and writes the same memory: its `stream` goes on when all uses so far are
  // over, and what it was given until released_by() ends before the next one. Neither blocks for the device.
  void hand_to(void* stream) const;
  void released_by(void* stream) const;
  Tensor contiguous() const;  // itself, or a contiguous copy; on the host
  // Itself where the host can address its memory, else a contiguous copy of the host's. Blocks until it is
  // ready, and while Exclusive is another thread's.
  Tensor to_host() const;
  bool on_host() const;                  // the host can address its memory
  std::optional<Device> device() const;  // whose memory it is; nothing: a caller's, or that device is gone

 private:
  friend struct Internals;
  struct Rep;
  static Tensor copy_of(const Shape& shape, DType dtype, const void* values, size_t count);
  const void* checked_data(DType dtype) const;
  std::shared_ptr<Rep> rep_;
};

// ---- devices

enum class Exhaustion : uint8_t {
  share,  // one more thread than streams: the least loaded stream serves two (default)
  wait,   // the next thread waits for a stream to be returned, up to stream_wait
  fail,   // it gets exhausted
};

struct DeviceOptions {
  // CPU threads for computing, callers included; 0: the cores this process may use (affinity, cgroup quota).
  int threads = 0;
  int streams = 0;  // 2 to 1024, the default stream included; 0: 32, or one more than calls on the host
  Exhaustion exhaustion = Exhaustion::share;
  std::chrono::nanoseconds stream_wait = std::chrono::seconds(30);
  uint64_t executable_bytes = uint64_t{512} << 20;  // compiled shapes kept; the least used go first
  double memory_fraction = 1.0;                     // of the device's memory, for this process
  int in_flight = 0;  // submissions at once, of the whole process; 0: what the device asks for; at most 1024
  int slices = 0;     // threads in CallOptions::in_slices at once; 0: what suits the device; at most 1024
  bool numa_copies = true;  // of weights, to each memory node whose threads call the model, where that pays
};

struct MemoryStats {
  uint64_t allocated;  // bytes in tensors and weights, but for what lies in `staging`
  uint64_t reserved;   // bytes held from the driver: allocated, cached, and what calls run with
  uint64_t peak_allocated, peak_reserved;  // the most so far, or since reset_peak_memory()
  uint64_t limit;                          // where `exhausted` begins
  uint64_t recommended_max;                // what the device says may reasonably be used
  uint64_t hits, misses, frees;
  uint64_t slots;    // bytes that calls run with: between nodes, and callers' rows on their way
  uint64_t staging;  // bytes of the host's memory held for a device that has its own; in none of the above
};

struct DeviceFact {
  std::string name, value;
};

struct DeviceStats {
  MemoryStats memory;
  uint64_t calls;  // runs since it was opened; a batch of calls is one
  uint64_t compiles, cache_hits, evictions, cached_bytes;  // executables
  uint64_t waits_for_lane;                                 // calls that found the device full
  std::chrono::nanoseconds longest_wait_for_lane;
  int streams_leased, streams_leased_max;
  uint64_t streams_shared;  // leases that had to share
};

// A device and all that Heddle keeps for it: streams, memory, compiled models. Device("host") is the
// process's own; open() makes another one, with its own options, on the same hardware.
class HEDDLE_API Device {
 public:
  Device();  // HEDDLE_DEVICE, else "metal" on a Mac, "host" elsewhere
  // Made on first use; unsupported when this build has none of that name, unavailable where the machine has
  // not what it needs; "": as Device().
  Device(std::string_view name);  // NOLINT: "host"; "cuda:1" is the second of its kind
  Device(const char* name) : Device(std::string_view(name)) {}  // NOLINT
  static Device open(std::string_view name, const DeviceOptions& options);
  // Options of the process's own device. Before its first use, else invalid.
  static void configure(std::string_view name, const DeviceOptions& options);
  static std::vector<Device> all(std::string_view kind);  // of the machine, made on first use
  static std::vector<std::string> names();   // of this build, where the machine has what they need
  static std::vector<DeviceFact> missing();  // the others, each with the file or the version it lacks

  std::string name() const;
  std::string description() const;  // hardware, threads, libraries
  // For people: versions and limits; and faults that the vendor's stack is known for in this version, each
  // with what Heddle does about it.
  std::vector<DeviceFact> facts() const;
  std::vector<DeviceFact> defences() const;
  bool unified_memory() const;  // the host addresses its memory
  int threads() const;
  int in_flight() const;
  int slices() const;
  int streams() const;

  void synchronize(
      Timeout timeout = {}) const;  // blocks until all work given so far is over; throws its first failure
  void empty_cache() const;         // gives cached memory back
  void set_memory_fraction(double fraction) const;  // (0, 1]
  void reset_peak_memory() const;
  DeviceStats stats() const;
  // Called, with no lock held and on the thread that needs memory, before an allocation fails, 8 times at
  // most; may free what it can, call empty_cache and call models, but not wait for an answer or for another
  // thread's call, or close a model. Memory that it asks for itself calls no callback.
  void on_memory_pressure(std::function<void(uint64_t bytes_needed)> callback) const;
  // Refuses new calls (unavailable), wakes those that wait, waits for those that run. Idempotent.
  void close(Timeout timeout = {}) const;

 private:
  friend struct Internals;
  struct Rep;
  explicit Device(std::shared_ptr<Rep> rep) : rep_(std::move(rep)) {}
  std::shared_ptr<Rep> rep_;
};

// The device to oneself, for other libraries on the same hardware: waits until nothing of the process runs
// on it; until destroyed, other threads' model calls, copies and stream waits wait. Reading results does not.
// Its own thread may copy; a model call or a second Exclusive there is invalid.
class HEDDLE_API Exclusive {
 public:
  explicit Exclusive(const Device& device = {}, Timeout timeout = {});
  ~Exclusive();
  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

// ---- streams and events

// A moment in a stream's work. A default-made one has never been recorded: query() is true, waits return at
// once.
class HEDDLE_API Event {
 public:
  Event() = default;
  bool query() const;                     // over?
  void wait(Timeout timeout = {}) const;  // blocks; throws the stream's failure, or deadline
  // Milliseconds between two recorded events that are over; invalid otherwise.
  double elapsed_ms(const Event& later) const;

 private:
  friend struct Internals;
  struct Rep;
  std::shared_ptr<Rep> rep_;
};

// An ordered queue of work, leased from the device's pool. Stream() leases one for itself until the last
// copy goes. Calls on one stream from several threads are serialised, in no promised order.
class HEDDLE_API Stream {
 public:
  explicit Stream(const Device& device = {});
  // In step with another library's, a cudaStream_t say: calls wait for what it was given, and it for them.
  static Stream from_native(void* handle, const Device& device = {});
  int id() const;  // 0: the default stream; below 0: another library's
  Device device() const;
  void* native_handle() const;  // the vendor's, a cudaStream_t say, during the lease; null: none
  Event record() const;         // after all the work given so far
  // Work given from now on starts after `event`. Does not block a caller on asynchronous devices.
  void wait(const Event& event) const;
  // In stream order; dtype and shape are the same, either side may be strided, the two do not overlap. On an
  // asynchronous device blocks only while it needs memory that is not Heddle's.
  void copy(const Tensor& from, const Tensor& to) const;
  bool query() const;  // nothing left to do?
  void synchronize(Timeout timeout = {}) const;

 private:
  friend struct Internals;
  struct Rep;
  explicit Stream(std::shared_ptr<Rep> rep) : rep_(std::move(rep)) {}
  std::shared_ptr<Rep> rep_;
};

// The calling thread's stream: the innermost StreamGuard's, else the default stream on the main thread,
// else a stream leased for this thread until it ends or calls release_current_thread_slot().
HEDDLE_API Stream current_stream(const Device& device = {});
HEDDLE_API Stream default_stream(const Device& device = {});
HEDDLE_API void release_current_thread_slot(const Device& device = {});

// Calls of this thread go to `stream` while it lives. Guards nest.
class HEDDLE_API StreamGuard {
 public:
  explicit StreamGuard(Stream stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;
};

// Hands out streams for explicit use, such as one per worker of a pool. acquire() follows the device's
// exhaustion mode.
class HEDDLE_API StreamPool {
 public:
  explicit StreamPool(const Device& device = {}) : device_(device) {}
  Stream acquire(Timeout timeout = {}) const;
  std::optional<Stream> try_acquire() const;  // only a stream without another owner
  int size() const { return device_.streams(); }

 private:
  Device device_;
};

HEDDLE_API void synchronize(const Device& device = {});

// ---- models

struct Port {
  std::string name;
  DType dtype;
  std::vector<std::string> shape;  // "3", or a symbol such as "batch", or an expression such as "2*batch"
};

// An axis of an input along which rows of different lengths may share a batch, padded with `pad`. The model
// must not let padding change a row's result: usually a mask is an input too, padded with 0.
struct RaggedInput {
  std::string input;
  int axis = 1;  // from 1 on; its extent has to be a symbol
  double pad = 0;
};

struct ModelOptions {
  std::optional<Device> device;  // nothing: Device()
  // Instead of `device`, several of one kind: each has the model. A call goes to the device of its stream or
  // of its tensors, else to the one with the fewest rows under way, and to one that is lost or closed only
  // if all are.
  std::vector<Device> devices = {};
  std::string precision = "f32";  // factors of f32 products may be rounded: "bf16", "tf32", "f16"
  // Calls that find the device busy are joined into one batch along axis 0, when the model is proven
  // batchable; explain_coalescing() tells. A lone caller is not affected.
  bool coalesce = true;
  // A row's bits do not depend on what it is batched with; rows of different length share no batch.
  bool exact = false;
  // Nothing: what is known of common exports (input_ids with attention_mask, padded with 0), after a check
  // that padding changes no result. Outputs as long as the ragged axis are cut back. Empty: only rows of
  // equal shapes share a batch.
  std::optional<std::vector<RaggedInput>> ragged;
  int max_batch = 64;      // rows
  int max_waiting = 4096;  // callers that wait to be batched; one more gets exhausted
  Timeout latency_bound;   // no batch is formed that is known to run longer
  // Keeps the graph as it was given, for source_graph() and replacements(), and with it constants that
  // optimisation made needless.
  bool keep_source = false;
};

// Nodes of the optimised graph, and the nodes of the source that they stand for.
struct Replacement {
  std::string name;                  // of the value that the last of `nodes` makes
  std::vector<std::string> nodes;    // their operators, in order
  std::vector<std::string> sources;  // the same of the source
};

// How fast a device is at its best: what estimates are made with.
struct Rates {
  double flops_per_s;         // in products of large matrices
  double cached_bytes_per_s;  // of operands that the caches hold
  double memory_bytes_per_s;  // of larger ones
  double cached_bytes;        // up to which operands, all together, count as cached
  double step_s;              // of starting a step
};
// Measured on the device, by models of one product, of one copy and of many small steps; takes about a
// second. With callers beside it the rates come out lower.
HEDDLE_API Rates measure_rates(const ModelOptions& options = {});

struct PlannedNode {
  std::string op;
  std::string name;                    // of its first output
  std::vector<std::string> outputs;    // "f32[8, 128, 384]"
  uint64_t step;                       // its number in a trace, from 1; 0: nothing runs, a renamed shape say
  std::optional<double> flops, bytes;  // none: nothing runs, or graphs inside the node (If, Loop)
  std::optional<double> estimated_s;   // of the same: the larger of computing and moving, and the start
  std::string path;                    // how the device carries it out, and why so; "" where there is one way
};

// What a call with certain shapes does.
struct Plan {
  std::vector<PlannedNode> nodes;       // in order
  std::optional<uint64_t> arena_bytes;  // of values between nodes; none: the vendor's library places them
  uint64_t arena_bytes_apart;           // the same if no memory were used twice
  std::optional<uint64_t> slot_bytes;   // of a call under way: with what nodes need while they run; none: so
  std::string weights;                  // where their copies are, by memory node; "": there is one of each
  std::string launches;                 // whether a GPU replays a graph, and why not; "": no device of graphs
};

struct CallOptions {
  // Of waiting for another thread's compilation, a turn and the result; deadline leaves the model as it was.
  Timeout timeout;
  std::optional<Stream> stream;  // instead of the StreamGuard's
  std::stop_token cancel = {};   // ends the wait for a batch with `cancelled`; what runs already runs on
  // Results lie in memory of the device, whatever the inputs' is; else where most that reads them is: results
  // of inputs that the host can address are the host's to address. Such a call is not coalesced.
  bool keep_on_device = false;
  // Memory to write the results to: nothing, or a contiguous tensor for each output, of its type. It may
  // share memory with inputs: where it is all of an input and the driver can, the run writes in place, which
  // for a ScatterND or a ScatterElements costs what is written and not the whole; else the result is computed
  // apart and copied. Such a call is not coalesced.
  std::vector<Tensor> outputs = {};
  // One of many short calls of its thread, as operators are. More such threads than Device::slices() go on in
  // slices of time: neither a processor nor Python's lock changes hands at each call.
  bool in_slices = false;
};

struct CoalescingStats {
  uint64_t calls;              // answered
  uint64_t batches;            // runs, those of lone callers included
  std::vector<uint64_t> rows;  // [n]: runs of n rows
  uint64_t exhausted;          // refused: max_waiting
  uint64_t left;               // deadline or cancelled while they waited
  size_t waiting;              // now
  int64_t max_batch;           // rows a batch like the last ones may have now, by what was measured
  int lanes;                   // that batches are spread over, likewise
};

// A compiled model. Weights are loaded and packed once, a shape is compiled once, however many threads ask.
class HEDDLE_API Model {
 public:
  // Reads an ONNX file, opset 7 or newer; external data beside it is mapped. invalid or unsupported name
  // the node.
  static Model load(const std::string& path, const ModelOptions& options = {});
  static Model load_bytes(std::span<const std::byte> onnx, const ModelOptions& options = {});

  const std::vector<Port>& inputs() const;
  const std::vector<Port>& outputs() const;
  // May callers' rows be joined along axis 0? When not, why_not_batchable() names the node and the reason.
  bool batchable() const;
  const std::string& why_not_batchable() const;
  // Whether calls that wait are joined into batches, with what is padded, or why not.
  std::string explain_coalescing() const;
  std::optional<CoalescingStats> coalescing_stats() const;  // nothing when they are not
  Device device() const;                                    // of several the first
  std::vector<Device> devices() const;                      // all of them
  Device device_of(std::span<const Tensor> inputs) const;   // whose memory one of them is in, else device()
  uint64_t weight_bytes() const;                            // on each
  std::string graph() const;  // the optimised graph, one line a node, for people
  // As it was given, and what became of it: every node of the optimised graph is in one Replacement. Both are
  // invalid without ModelOptions::keep_source.
  std::string source_graph() const;
  std::vector<Replacement> replacements() const;

  // Inputs and results in the order of inputs() and outputs().
  std::vector<Tensor> operator()(std::span<const Tensor> inputs, const CallOptions& options = {}) const;
  std::vector<Tensor> operator()(std::initializer_list<Tensor> inputs, const CallOptions& given = {}) const {
    return (*this)(std::span<const Tensor>(inputs.begin(), inputs.size()), given);
  }
  // The same with windows on memory, which stays meanwhile, in the place of the Tensors of memory.view().
  struct Window {
    const Tensor& memory;
    DType dtype;
    std::span<const int64_t> shape, strides;
    int64_t offset;
  };
  std::vector<Tensor> call_windows(std::span<const Window> inputs, const CallOptions& options) const;
  // The same for hosts that hold a lock over the call, as Python's does: only where it runs alone, at once,
  // waits for nobody, and took at most so long in its first runs. Nothing: nothing was done.
  std::optional<std::vector<Tensor>> try_brief(std::span<const Tensor> inputs,
                                               std::chrono::nanoseconds at_most) const;
  // The same without a thread that waits. A call that is wrong, or one too many, throws here, and `then` is
  // not called. Otherwise it is called once, with the results or with what operator() would have thrown, on a
  // thread of the model's, perhaps before submit returns, with no lock of Heddle's held. It may submit again,
  // and let the last handle go. It should be short and must not wait for other answers, which may come after
  // it. What it throws is logged and dropped. Never blocks for a run, a batch or room. Inputs must not be
  // written before the answer; what a Tensor owns is kept until then. Streams do not apply: `stream` is
  // invalid. Where rows cannot be joined, or coalesce is off, each submission runs alone, in order.
  using Answer = std::function<void(std::vector<Tensor> results, std::exception_ptr error)>;
  void submit(std::span<const Tensor> inputs, const CallOptions& options, Answer then) const;
  // For hosts with a queue of their own, over a RequestQueue: requests that it has joined run as one batch,
  // now, on this thread, and each gets its own results or its own error. What concerns all of them is thrown.
  // `formed` is called when the rows are staged. Only requests of equal group() may run together; group()
  // throws what is wrong with a request. Unsupported where rows cannot be joined.
  struct Outcome {
    std::vector<Tensor> results;
    std::exception_ptr error;
  };
  std::vector<int64_t> group(std::span<const Tensor> inputs) const;
  std::vector<Outcome> run_together(std::span<const std::vector<Tensor>> requests,
                                    const std::function<void()>& formed = {}) const;
  // Compiles for these input shapes now. Blocks; one compile per shape, however many threads ask.
  void compile(std::span<const Shape> shapes) const;
  // What a call with these input shapes does: nodes with estimated times, and memory. For people; compiles.
  Plan plan(std::span<const Shape> shapes, const Rates& rates) const;
  // Refuses new calls (unavailable), waits for those under way and for all answers to what was submitted,
  // then frees what was compiled. Idempotent. The end of the last handle does the same. Inside an answer
  // neither waits for that answer.
  void close() const;
  bool closed() const;

 private:
  friend struct Internals;
  struct Rep;
  explicit Model(std::shared_ptr<Rep> rep) : rep_(std::move(rep)) {}
  std::shared_ptr<Rep> rep_;
};

// ---- batching

// How requests are joined. A request that finds its worker idle runs at once, whatever these say.
struct BatchLimits {
  int64_t max_batch = 64;    // rows
  int64_t max_cost = 0;      // of a batch, in the units of Request::cost; 0: not limited
  bool padded_cost = false;  // a batch costs its rows times its largest cost, instead of the sum
  // How long a batch that is not full may wait while other workers run, counted from its oldest request, and
  // the longest that callers just answered are waited for.
  std::chrono::nanoseconds max_wait = std::chrono::milliseconds(5);
  std::chrono::nanoseconds aging =
      std::chrono::milliseconds(100);   // a waiting request gains one priority step
  std::vector<int64_t> preferred = {};  // ascending: a batch that is not full is cut back to one of these
  size_t capacity = 16384;              // requests that wait
};

struct Distribution {  // seconds; percentiles at most an eighth too high
  uint64_t count = 0;
  double sum = 0, p50 = 0, p95 = 0, p99 = 0;
};

struct BatchMetrics {
  uint64_t depth = 0, depth_rows = 0, capacity = 0, running = 0;
  uint64_t submitted = 0, rejected = 0, expired = 0, cancelled = 0, refused = 0;  // requests
  uint64_t batches = 0, failed_batches = 0, hung_batches = 0, rows = 0;
  double occupancy = 0;             // rows that ran / (batches * max_batch)
  Distribution wait, total;         // of a request: until its batch began; until it was answered
  Distribution form, run, scatter;  // of a batch
  std::vector<std::pair<int64_t, uint64_t>> batch_sizes;  // rows up to this (powers of two), batches
  HEDDLE_API std::string prometheus(
      const std::string& queue_name) const;  // the text format, label queue="..."
};

struct BatchHealth {
  // degraded: some workers are gone or hang; unavailable: all.
  enum class State : uint8_t { ok, degraded, unavailable, draining, closed } state;
  std::string reason;  // why not ok, or what the last trouble was
  int workers, hung, restarts;
};

// The mechanism below BatchQueue, for hosts that bring their own worker threads and their own results, as the
// Python package does: requests wait in it until a worker takes a batch. A payload is the host's handle and
// comes back exactly once: in a batch or in an Owed.
class HEDDLE_API RequestQueue {
 public:
  // Requests that the host answers: their payloads, where it has not got them in a batch. It holds this until
  // it has, and drain() waits for that. None: there is nothing to answer. It must not outlive the queue.
  using Owed = std::shared_ptr<const std::vector<void*>>;

  struct Options {
    BatchLimits limits;
    int workers = 1;
    Timeout hang_after;         // a batch that runs longer is reported by care()
    bool replace_hung = false;  // with one worker; several are replaced always
    bool pad = false;           // as in BatchQueueOptions
    std::vector<int64_t> buckets = {};
    bool cut = false;
  };
  struct Request {
    void* payload = nullptr;
    uint64_t group = 0;  // only requests of one group share a batch
    int64_t rows = 1;    // to 2^40
    int64_t cost = 0;
    int priority = 0;  // higher first
    Timeout timeout;   // expired, when not taken by then
  };
  struct Work {
    uint64_t ticket = 0;  // 0: nothing to run
    std::vector<void*> batch;
    Owed expired;
  };
  struct Care {
    Owed expired;
    std::vector<uint64_t> hung;  // tickets
    bool closed = false;
  };
  struct Hang {
    Owed owed;             // its batch, and what waited, if no other worker is there; none: it came back
    bool replace = false;  // by a new worker
  };

  struct Described {
    int64_t rows, length;  // length: the longest axis 1, with padding
    uint64_t group;
  };

  explicit RequestQueue(const Options& options);
  ~RequestQueue();  // after close(), and when no thread is inside
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  // Requests that are arrays of the host's, by their shapes. `kinds`: what else is equal in a batch, such as
  // dtypes. Throws what is wrong with the request. stacked(): an array of the batch's, made of these.
  Described describe(std::span<const int64_t> kinds, std::span<const Shape> arrays) const;
  uint64_t group(std::span<const int64_t> key) const;  // for a key of the host's own
  Shape stacked(std::span<const Shape> arrays, int64_t longest) const;

  // All or none; returns their ids. When there is no room, waits for it up to `room` (0: not at all), then
  // throws exhausted.
  std::vector<uint64_t> submit(std::span<const Request> requests, Timeout room);
  // Without waiting. False: there is no room; submit() may wait for it.
  bool try_submit(std::span<const Request> requests, std::span<uint64_t> ids, uint64_t seeker = 0);
  // Room without a thread that waits, in line with those that do: `then` is called once, perhaps inside, with
  // no lock held. Then try_submit() as this seeker, which is refused where there will be no room. The room
  // is kept until then, or until leave_room().
  uint64_t seek_room(size_t wanted, std::function<void()> then);
  void leave_room(uint64_t seeker);
  Owed cancel(uint64_t id);  // none: it had been taken

  void await_due();                // blocks until a batch is due; unavailable once closed
  std::optional<Work> try_take();  // what is due now, unless another worker was quicker
  void formed(uint64_t ticket);
  Owed ran(uint64_t ticket);  // none: abandoned; others have answered
  // Over. With `linger`, its callers are still being woken, one by one: it counts as running until told(), at
  // most for that long and for max_wait, so that the next batch begins when they are back.
  // False: the worker was replaced while it hung, and must end.
  bool finish(uint64_t ticket, bool failed, std::chrono::nanoseconds linger = {});
  void told(uint64_t ticket);
  Owed abandon(uint64_t ticket);  // a batch that runs: the caller of abandon() answers it

  Care care();                 // blocks until a request expired, a batch hangs or the queue is closed
  Hang hang(uint64_t ticket);  // of a ticket that care() reported
  // A worker could not start: what waits, if it was the last one. Nothing more is taken then.
  Owed lost_worker(const std::string& why);
  bool worker_died(const std::string& why);  // true: start another
  BatchHealth health() const;
  // Takes nothing new; returns when nothing waits or runs and no Owed is held. A thread that has a batch or
  // an Owed itself does not wait for its own, nor for those of other such threads that drain.
  void drain(Timeout timeout);
  Owed close();  // what waits comes back, new requests get unavailable
  bool closed() const;
  void set_limits(const BatchLimits& limits);
  BatchLimits limits() const;
  BatchMetrics metrics() const;

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

// The answer to a request of a BatchQueue. Copies share it; it outlives its queue.
class HEDDLE_API BatchFuture {
 public:
  BatchFuture() = default;  // no request: only assignment, valid() and the destructor may follow
  bool valid() const { return rep_ != nullptr; }
  bool ready() const;
  void wait() const;
  bool wait_for(std::chrono::nanoseconds time) const;  // false: not ready by then
  std::vector<Tensor> get() const;  // waits; throws what became of the request instead; may be asked again
  // True: it had not begun, and is answered with cancelled. False: it runs or is answered, and goes on.
  bool cancel() const;
  // Called once, when it is ready: at once if it is, else on the thread that answers. It must not throw.
  void then(std::function<void(const BatchFuture&)> callback) const;

 private:
  friend struct Internals;
  struct Rep;
  explicit BatchFuture(std::shared_ptr<Rep> rep) : rep_(std::move(rep)) {}
  std::shared_ptr<Rep> rep_;
};

// Gets the stacked inputs of a batch and returns tensors with one row per row. What it throws, the requests
// of the batch get.
using BatchFunction = std::function<std::vector<Tensor>(std::span<const Tensor> stacked)>;

struct BatchQueueOptions {
  BatchLimits limits;
  int workers = 1;  // threads; 1: the function has one owner
  // How long submit() waits for room when the queue is full, then it throws exhausted; 0: at once. On the
  // queue's own workers always at once, since they make the room.
  Timeout full_wait = std::chrono::seconds(30);
  std::function<int64_t(std::span<const Tensor> inputs)> cost;  // of one request; empty: its bytes
  // Inputs of unequal extents (axes from 1 on) share batches, filled up with this value; with buckets, axis 1
  // is filled up to one of them. Without: equal row shapes only. cut: results' axis 1 is cut back again.
  std::optional<double> pad;
  std::vector<int64_t> buckets;
  bool cut = false;
  bool retry = false;  // a failed batch may run again in halves, until the bad request stands alone
  // Makes the function on the worker's own thread, instead of the one given.
  std::function<BatchFunction()> setup;
  Timeout hang_after;           // a batch that runs longer is answered with unavailable
  bool replace_hung = false;    // start another worker then, even where workers is 1
  std::vector<Tensor> warm_up;  // a request, run at every size and bucket before the first real one
};

// Requests from any threads, joined along axis 0 into batches for a model or any function. For a model, what
// only the data shows (an index out of range) fails its own request, ragged rows share batches as in its
// calls, and a request of the wrong shape or dtype throws in submit(). With pad or setup a model is a
// function like others.
class HEDDLE_API BatchQueue {
 public:
  explicit BatchQueue(const Model& model, const BatchQueueOptions& options = {});
  explicit BatchQueue(BatchFunction function, const BatchQueueOptions& options = {});
  ~BatchQueue();  // close()
  BatchQueue(const BatchQueue&) = delete;
  BatchQueue& operator=(const BatchQueue&) = delete;

  // A bad request, or one too many, throws here. `timeout`: until when it must have begun to run. Inputs must
  // not be written before the answer is there. More rows than max_batch are split and their results joined.
  BatchFuture submit(std::vector<Tensor> inputs, Timeout timeout = {}, int priority = 0);
  BatchMetrics metrics() const;
  BatchHealth health() const;
  void set_limits(const BatchLimits& limits);
  // Takes nothing new; returns when all is answered: within then() or a batch, all that others run or answer.
  void drain(Timeout timeout = {});
  // What waits gets unavailable; batches that run end. Idempotent. Not on a worker's own thread.
  void close();

 private:
  struct Rep;
  explicit BatchQueue(std::shared_ptr<Rep> rep);
  std::shared_ptr<Rep> rep_;
};

// ---- graphs by hand

using Dim = std::variant<int64_t, std::string>;  // a number, or a symbol
using Attribute =
    std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>, Tensor>;
using AttributeList = std::vector<std::pair<std::string, Attribute>>;

// Builds a model operator by operator. Operator names and attributes follow ONNX's newest opset, axes and
// shapes being inputs where ONNX has them so; types are checked at once. One thread at a time.
class HEDDLE_API GraphBuilder {
 public:
  struct Value {
    uint32_t id;
  };
  explicit GraphBuilder(std::string name = "graph");
  ~GraphBuilder();
  GraphBuilder(GraphBuilder&&) noexcept;
  GraphBuilder& operator=(GraphBuilder&&) noexcept;

  struct DimArgument : Dim {                                       // so that {"batch", 3} is a shape
    DimArgument(int64_t n) : Dim(n) {}                             // NOLINT
    DimArgument(int n) : Dim(int64_t{n}) {}                        // NOLINT
    DimArgument(const char* symbol) : Dim(std::string(symbol)) {}  // NOLINT
    DimArgument(std::string symbol) : Dim(std::move(symbol)) {}    // NOLINT
  };
  Value input(const std::string& name, DType dtype, const std::vector<DimArgument>& shape);
  Value constant(const Tensor& tensor);                       // copied
  static constexpr Value absent() { return {~uint32_t{0}}; }  // an optional input left out
  Value add(std::string_view op, const std::vector<Value>& inputs, const AttributeList& attributes = {},
            const std::string& name = "");
  std::vector<Value> add_multiple(std::string_view op, const std::vector<Value>& inputs, size_t outputs,
                                  const AttributeList& attributes = {}, const std::string& name = "");
  void output(Value value, const std::string& name);
  std::string type(Value value) const;            // "f32[batch, 3]"
  Port port(Value value) const;                   // the same in parts
  Model build(const ModelOptions& options = {});  // ends the builder
  // The slow, obvious reference interpreter on the same graph, unoptimised: the oracle for tests. Does not
  // end the builder.
  std::vector<Tensor> evaluate(std::span<const Tensor> inputs) const;

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

// Things of the host's made once per key, however many threads ask: models it builds by itself, say. A
// failure reaches all waiters and is not kept. A hit takes no lock.
class HEDDLE_API OnceCache {
 public:
  explicit OnceCache(size_t limit);  // entries; the least used go first; 0: no limit
  ~OnceCache();
  OnceCache(const OnceCache&) = delete;
  OnceCache& operator=(const OnceCache&) = delete;
  // `make` runs on the first caller's thread, with no lock held; what it throws, all waiters get as Error.
  std::shared_ptr<const void> get_or_make(std::string_view key,
                                          const std::function<std::shared_ptr<const void>()>& make);
  struct Stats {
    uint64_t hits, misses, failures, evictions, count;
  };
  Stats stats() const;
  void clear();

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

// ---- looking inside

struct LockStats {
  std::string name;
  uint64_t acquisitions, contentions;
  std::chrono::nanoseconds longest_wait;
};
HEDDLE_API void count_locks(bool on);  // off by default
HEDDLE_API std::vector<LockStats> lock_stats();
HEDDLE_API void reset_lock_stats();

// Spans of every call, compile, wait and allocation, to a Chrome / Perfetto JSON file.
HEDDLE_API void start_trace(const std::string& path);
HEDDLE_API void stop_trace();

enum class LogLevel : uint8_t { info, warning, error };
// One callback for the process; may be called from any thread, with no lock of Heddle's held. An empty one
// switches logging off (the default).
HEDDLE_API void set_log(std::function<void(LogLevel, const std::string&)> callback);

// Asked about every 50 ms by each thread that waits inside Heddle with a timeout or without; true ends the
// wait with `deadline`. For hosts that must stay interruptible (Python's Ctrl-C). Null, the default: waits
// are not disturbed.
HEDDLE_API void set_interrupt_check(bool (*asked)());

// For hosts whose threads need one thing in turn when a call has ended, as Python's threads need its lock.
// While one lives, calls of its thread that share a batch are answered when few such threads are on their
// way. Make it without that thing: others may be woken. passed() says that this one has it. Any number of
// threads, each with its own. Does not block.
class HEDDLE_API PacedReturn {
 public:
  PacedReturn();
  ~PacedReturn();
  PacedReturn(const PacedReturn&) = delete;
  PacedReturn& operator=(const PacedReturn&) = delete;
  void await_turn();  // spins for some 60 us at most, while another thread most likely has it
  void passed();

 private:
  alignas(void*) std::byte scope_[4 * sizeof(void*)];
};

HEDDLE_API std::string version();
// Environment variables Heddle knows, each with its meaning and its value ("" when not set).
struct EnvironmentVariable {
  std::string name, meaning, value;
};
HEDDLE_API std::vector<EnvironmentVariable> environment();

// Replays a plan on the simulated device and says as JSON what happened: the same for equal arguments. The
// user guide has the words of plans; invalid names one that does not exist, and those that do.
HEDDLE_API std::string replay(uint64_t seed, std::string_view plan = {});

// What the reader of ONNX files takes of domain ai.onnx.
struct OnnxSupport {
  int64_t oldest_opset, newest_opset;
  std::vector<std::string> operators;  // sorted
};
HEDDLE_API OnnxSupport onnx_support();

}  // namespace heddle
