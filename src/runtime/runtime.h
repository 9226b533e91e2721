// runtime.h: one device's models, streams, memory and programs, and the way a call takes through them.
//
//   What       run() checks the inputs, finds the program, makes the outputs, stages what the device cannot
//              name, gets a permit, submits.
//              Everything else here is what the API needs to offer tensors and streams.
//   States     open -> closed. close() refuses calls (unavailable), wakes parked ones and waits for running
//              ones.
//   Threads    Any. Threads may be alive at the end: whatever they still hold (streams, buffers, leases,
//              programs) keeps what it needs.
//   Blocks     run() and start(): for a first compilation (another thread's until the deadline, its own to
//              the end), for a permit and for a shared stream's turn. run() with Call::wait, and finish():
//              for the results.
//   Fork       In a child process every call returns `unavailable` before it touches a lock; destroying the
//              Runtime there frees nothing.
//   Lifetime   Owns all parts; destroyed in reverse order. The destructor closes and waits for running calls
//              without a bound.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "runtime/admission/governor.h"
#include "runtime/admission/lone_door.h"
#include "runtime/admission/time_slices.h"
#include "runtime/binding.h"
#include "runtime/executables.h"
#include "runtime/lane.h"
#include "runtime/memory/allocator.h"
#include "runtime/memory/slots.h"
#include "runtime/model.h"
#include "runtime/options.h"
#include "runtime/streams/stream_pool.h"

namespace heddle::runtime {

// A call that was submitted, for finish().
struct InFlight {
  Gate::Pass inside;
  Binding binding = {};      // whose outputs finish() takes
  Ref<Slot> slot = nullptr;  // which they may lie in
  bool is_in_slot = false;   // they do, and the slot says where
  Ref<device::RowFaults> faults = nullptr;
  Ref<Stream> stream = nullptr;  // null: it is over
  uint64_t value = 0;            // on the stream's timeline
  bool may_leave = true;         // at a deadline
};

class Runtime {
  struct Parts {  // in order of birth; in a forked child they are left alone
    Ref<Governor> governor;
    Ref<Executables> executables;
    Ref<Allocator> allocator;
    Ref<Roster> roster;
    Ref<StreamPool> streams;
    Ref<Lanes> lanes;
    Ref<Slots> slots;
    std::unique_ptr<TimeSlices> time_slices;  // for calls that ask for them
    Guarded<std::vector<std::weak_ptr<Model>>, Rank::kRegistry> models;
    Atomic<bool> reaper_stops{false};  // set once, before the bell is rung a last time
    struct Nothing {};
    Guarded<Nothing, Rank::kHelpers> reaper_rests;
    Thread reaper;  // asynchronous devices only
  };

 public:
  static Result<Ref<Runtime>> make(Ref<device::Device> device, Options options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Result<Ref<Model>> load(ir::Graph graph, const device::LoadOptions& options = {});
  Result<std::vector<device::View>> run(Model& model, const Call& call);  // the outputs, in the model's order
  // For a call that will not wait, without a lock, a gate or a reference count: takes a free lane, as far as
  // the door is open, and runs there what can run at once, and with a bound what is known to take at most so
  // long. Nothing: nothing was done, and run() is the way.
  using Views = std::vector<device::View>;
  std::optional<Result<Views>> try_run(const Model& model, std::span<const device::View* const> inputs,
                                       LoneDoor& door, Duration at_most = Duration::max());
  // The same on a stream whose Turn is free, in its order, with any lane: for calls as short as operators.
  struct OnStream {
    Stream& stream;
    std::span<const device::View* const> inputs, outputs;  // outputs: empty, or memory to write to
    bool in_slices;
    Deadline deadline;  // of the wait for a slice
  };
  std::optional<Result<Views>> try_run_on(const Model& model, const OnStream& call);
  // run() in two steps; Call::wait says that finish() will be called. After a deadline it may be called
  // again, by any one thread.
  Result<InFlight> start(Model& model, const Call& call);
  Result<std::vector<device::View>> finish(InFlight& started, Deadline deadline);
  // So that the first call need not. The deadline is for waiting while another thread compiles the same.
  Status compile(Model& model, std::span<const ir::Extents> inputs, Deadline deadline = Deadline::never());

  // What such a call would do; for people.
  Result<plan::ProgramPlan> plan(Model& model, std::span<const ir::Extents> inputs);

  Result<Ref<device::Buffer>> allocate(uint64_t bytes, device::MemoryKind kind = device::MemoryKind::device);
  Result<device::View> allocate(ir::DType dtype, const ir::Extents& extents,
                                device::MemoryKind kind = device::MemoryKind::device);  // contiguous
  // In stream order, and not during another thread's exclusive hold. On an asynchronous device they return
  // when a side without buffer is no longer needed, else at once; `keep` is as in Call.
  Status copy(Stream& stream, const device::View& from, const device::View& to,
              Deadline deadline = Deadline::never(), Ref<const void> keep = nullptr);
  Status fill(Stream& stream, const device::View& to, double value, Deadline deadline = Deadline::never());
  // What is submitted to `stream` from here on runs after the event.
  Status wait(Stream& stream, const Event& event, Deadline deadline = Deadline::never());
  // An event that another library has made, as one of ours; and the reverse: it is reached once all that was
  // submitted to `stream` so far is over. unsupported on devices without Traits::events.
  Result<Event> import_event(const device::ForeignEvent& event);
  Status signal(Stream& stream, device::ForeignEvent event, Deadline deadline = Deadline::never());
  // Memory of another library on the device, which what its `stream` was given so far may still write; null:
  // nothing does. The reverse: `stream` goes on when all uses of the view's memory so far are over. What it
  // is given until released_by() may read and write there, and is over before the memory is used again.
  Result<Ref<device::Buffer>> lend(device::ForeignMemory memory, void* stream);
  Status hand_to(void* stream, const device::View& view);
  Status released_by(void* stream, const device::View& view);
  // A stream in step with another library's (stream.h). unsupported where the device orders none.
  Result<Ref<Stream>> follow(void* stream);

  // All streams and lanes; goes on past a failing one and returns the first failure.
  Status synchronize(Deadline deadline = Deadline::never());
  // Refuses new calls, wakes parked ones, and waits for running ones until `deadline`.
  void close(Deadline deadline = Deadline::never());
  bool closed() const { return gate_.closed(); }
  Status usable() const;  // unavailable when closed, or in a forked child
  Status ours() const;    // unavailable in a forked child

  const device::Device& device() const { return *device_; }
  const Options& options() const { return options_; }
  Slots& slots() { return *parts_->slots; }  // for those who fill one before they call
  StreamPool& streams() { return *parts_->streams; }
  Allocator& allocator() { return *parts_->allocator; }
  Governor& governor() { return *parts_->governor; }
  TimeSlices& time_slices() { return *parts_->time_slices; }
  Executables& executables() { return *parts_->executables; }

  struct Stats {
    StreamPool::Stats streams;
    Allocator::Stats memory;
    // Of memory.allocated, and of memory.staging.allocated: arenas, and inputs and outputs on their way.
    uint64_t slot_bytes = 0, slot_staging_bytes = 0;
    Governor::Stats governor;
    TimeSlices::Stats slices;
    Executables::Stats executables;
    size_t in_flight = 0;       // submissions that are not over, on all streams
    uint64_t reaper_rings = 0;  // how often the reaper was woken
  };
  Stats stats() const;

 private:
  Runtime(Ref<device::Device> device, const Options& options);
  Status build();
  void reap();
  std::vector<Ref<Model>> models() const;
  struct Entry {
    Permit permit;
    std::optional<Turn> turn;  // of the call's stream
    Lane* lane = nullptr;
    std::optional<Result<uint64_t>> joined = std::nullopt;  // the value: there is no permit and no lane
  };
  struct Joining {
    device::CommandList& list;
    Submission& extras;
  };
  template <class Find>
  Result<Ref<const device::Program>> find_program(const Model& model, Find&& find);
  Result<Entry> enter(const Model& model, const Call& call, const Joining* joining = nullptr);
  Status run_with_lane(InFlight& started, Model& model, const Call& call, Ref<const device::Program> program);
  class LoneLane;
  std::optional<Result<Views>> run_on_lane(Lane& lane, const Model& model,
                                           std::span<const device::View* const> inputs, Duration at_most,
                                           bool among_many);
  bool reserve_arena(Lane& lane, uint64_t bytes);  // false: not without pressure callbacks
  PreparedCall* prepared(Lane& lane, const Model& model, std::span<const device::View* const> inputs);
  std::optional<Views> fresh_outputs(PreparedCall& call);
  std::optional<Views> given_outputs(PreparedCall& call, const OnStream& given) const;
  Status begin(InFlight& started, Model& model, const Call& call);
  Status submit_staged(InFlight& started, Model& model, const Call& call, Ref<const device::Program> program);
  bool runs_in_slot(const Call& call) const;
  Status submit_in_slot(InFlight& started, const Model& model, const Call& call,
                        Ref<const device::Program> program);
  Result<device::View> stage(const device::View& view, bool write, Deadline deadline);
  using Enter = Result<Permit> (Governor::*)(ModelId, Deadline, DuringHold);
  Status enter_on(Stream& stream, Enter enter, ModelId who, Deadline deadline, Entry& entry,
                  const Joining* joining = nullptr);
  Result<uint64_t> submit(Turn turn, device::CommandList list, Submission extras);
  struct Moving {
    bool wait = false;      // until it is over
    bool may_leave = true;  // at the deadline
    Ref<const void> keep = nullptr;
  };
  Status move_data(Stream& stream, device::CommandList list, Deadline deadline, Moving moving);

  const Ref<device::Device> device_;
  const Options options_;
  const uint32_t generation_;
  const bool can_run_at_once_;  // try_run() is for synchronous devices with one memory
  const ModelId copies_;        // as whose they wait for a Permit
  Gate gate_;                   // calls that are not a model's
  std::unique_ptr<Parts> parts_;
};

}  // namespace heddle::runtime
