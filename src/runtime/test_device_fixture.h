// test_device_fixture.h: a device for the runtime's own tests. Its programs are functions, its queues may be
// slow, wrong or lost on demand.
//
//   What       A model is a graph whose name picks the kernel; of its nodes only the outputs' types count.
//              Outputs have the first input's extents.
//   Threads    asynchronous: every queue runs its work on a thread of its own. Otherwise on the caller's.
//   Meetings   Work can be made to wait until two threads do it at once, which shows without a clock that no
//              lock is shared.
//   Counts     What lives (memory, queues, slots) and what was done (compilations, runs). At the end all that
//              lived must be gone.
#pragma once

#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/first_failure.h"
#include "base/thread.h"
#include "device/device.h"
#include "device/row_faults.h"
#include "ir/builder.h"
#include "runtime/latch_fixture.h"

namespace heddle::runtime::test {

using device::View;

enum class Work : uint8_t { kLoad, kCompile, kAllocate, kMakeQueue, kSubmit, kRun, kCopy, kFill, kCount };

class Meetings {
 public:
  void set(Work where, Meeting* meeting) { at_[static_cast<size_t>(where)].meeting.store_release(meeting); }
  void arrive(Work where) const {
    if (Meeting* const at = at_[static_cast<size_t>(where)].meeting.load_acquire()) at->arrive();
  }

 private:
  struct MeetingPoint {
    Atomic<Meeting*> meeting{nullptr};  // set by the test, release; acquired by those who come by
  };
  std::array<MeetingPoint, static_cast<size_t>(Work::kCount)> at_;
};

struct Counts {
  Atomic<int64_t> memory{0}, memory_bytes{0}, queues{0}, programs{0};  // living
  Atomic<uint64_t> allocations{0}, queues_made{0}, compilations{0}, runs{0}, copies{0}, running{0},
      most_running{0};  // done
  Meetings meetings;
  Atomic<Latch*> frees{nullptr};  // set by the test, release: memory is freed when it is open
  bool nothing_lives() const {
    return memory.load_acquire() == 0 && memory_bytes.load_acquire() == 0 && queues.load_acquire() == 0 &&
           programs.load_acquire() == 0;
  }
};

// For what has no other way to be waited for: gives way until `holds`. The test's own time limit ends a hang.
template <class Holds>
void wait_until(Holds&& holds) {
  while (!holds()) give_way();
}

// What tensors hold: slots keep their arenas.
template <class SomeRuntime>
uint64_t bytes_of_tensors(SomeRuntime& runtime) {
  const auto stats = runtime.stats();
  return stats.memory.allocated - stats.slot_bytes;
}

using Kernel = std::function<Status(const device::Run&)>;

struct TestOptions {
  bool asynchronous = false;
  bool binds_caller_memory = true;
  uint64_t caller_bytes = 0;  // that it has at least
  bool binds_offsets = true;
  bool unified = true;  // false: the host addresses staging memory only
  std::vector<int64_t> row_sizes = {};
  int lanes = 2;
  int threads = 0;               // that compute
  bool keeps_to_a_core = false;  // each run
  int queue_depth = 0;           // 0: as many as lanes
  int runs_together = 1;
  bool shows_native = false;  // a vendor's stream
  uint64_t memory_bytes = uint64_t{1} << 30;
  uint64_t staging_bytes = uint64_t{1} << 30;  // where it is not unified
  std::string name = "test";
  std::function<void()> look = {};  // called by who looks whether a queue's work is over
};

class TestDevice : public device::Device, public std::enable_shared_from_this<TestDevice> {
 public:
  explicit TestDevice(TestOptions options = {}, Ref<Counts> counts = std::make_shared<Counts>())
      : counts_(std::move(counts)),
        shows_native_(options.shows_native),
        keeps_to_a_core_(options.keeps_to_a_core),
        look_(options.look) {
    traits_.name = options.name;
    traits_.binding.caller_memory = options.binds_caller_memory;
    traits_.binding.caller_bytes = options.caller_bytes;
    traits_.binding.offsets = options.binds_offsets;
    traits_.unified_memory = options.unified;
    traits_.row_sizes = options.row_sizes;
    traits_.synchronous = !options.asynchronous;
    traits_.lanes = options.lanes;
    traits_.threads = options.threads;
    traits_.queue_depth = options.queue_depth == 0 ? options.lanes : options.queue_depth;
    traits_.runs_together = options.runs_together;
    traits_.memory_bytes = options.memory_bytes;
    traits_.staging_bytes = options.unified ? 0 : options.staging_bytes;
  }

  // Before the models that use it are loaded. Without a kernel a model copies its inputs to its outputs.
  void set_kernel(std::string model, Kernel kernel) { kernels_[std::move(model)] = std::move(kernel); }
  void set_compile(std::function<Status(std::span<const ir::Extents>)> compile) {
    compile_ = std::move(compile);
  }
  // As a driver that packs weights while it compiles, into memory of the Source that it was given.
  using Pack = std::function<Status(int64_t rows, device::Source& source)>;
  void set_pack(Pack pack) { pack_ = std::move(pack); }
  // Before the streams are made: called by every copy and fill, before it begins.
  void set_copy(std::function<void()> copy) { copy_ = std::move(copy); }
  // Before the streams are made: asked by every submission, which is refused where it is not ok, and over.
  void set_submit(std::function<Status()> submit) { submit_ = std::move(submit); }
  void refuse_memory(bool refuse) { refuse_memory_.store_release(refuse); }
  // Until `meeting` is null again, work of this kind waits there for that of another thread.
  void meet_at(Work where, Meeting* meeting) { counts_->meetings.set(where, meeting); }
  Counts& counts() { return *counts_; }
  const Ref<Counts>& shared_counts() { return counts_; }

  void lose() { loss_.record(Status::device_lost("the cable was pulled")); }

  const device::Traits& traits() const override { return traits_; }
  Status lost() const override { return loss_.status(); }
  Result<std::unique_ptr<device::Memory>> allocate(uint64_t bytes, device::MemoryKind kind,
                                                   NoLocksHeld) override;
  Result<std::unique_ptr<device::Queue>> make_queue(NoLocksHeld) override;
  Result<Ref<const device::Module>> make_module(plan::Prepared prepared, const device::LoadOptions&,
                                                Ref<device::Source>, NoLocksHeld) override;

 private:
  friend class TestModule;
  const Ref<Counts> counts_;
  const bool shows_native_, keeps_to_a_core_;
  const std::function<void()> look_;
  device::Traits traits_;
  std::map<std::string, Kernel> kernels_;
  std::function<Status(std::span<const ir::Extents>)> compile_;
  Pack pack_ = [](int64_t, device::Source&) { return Status(); };
  std::function<void()> copy_ = [] {};
  std::function<Status()> submit_ = [] { return Status(); };
  Atomic<bool> refuse_memory_{false};
  FirstFailure loss_;
};

class TestMemory final : public device::Memory {
 public:
  // Of a device that is not unified the host sees staging memory only.
  TestMemory(const device::Device& device, device::MemoryKind kind, void* bytes_of_it, uint64_t bytes,
             Ref<Counts> counts)
      : Memory({device.maker(), kind,
                device.traits().unified_memory || kind == device::MemoryKind::staging ? bytes_of_it : nullptr,
                reinterpret_cast<uintptr_t>(bytes_of_it), bytes}),
        counts_(std::move(counts)) {
    counts_->memory.add_relaxed(1);
    counts_->memory_bytes.add_relaxed(static_cast<int64_t>(bytes));
    counts_->allocations.add_relaxed(1);
  }
  ~TestMemory() override {
    if (Latch* const latch = counts_->frees.load_acquire()) latch->wait();
    counts_->memory.sub_relaxed(1);
    counts_->memory_bytes.sub_relaxed(static_cast<int64_t>(bytes()));
    std::free(reinterpret_cast<void*>(address()));
  }

 private:
  const Ref<Counts> counts_;
};

class TestProgram final : public device::Program {
 public:
  TestProgram(const ir::Graph& specialised, Kernel kernel, Ref<Counts> counts, bool keeps_to_a_core)
      : kernel_(std::move(kernel)), counts_(std::move(counts)), keeps_to_a_core_(keeps_to_a_core) {
    take_operands(specialised);
    for (ir::ConcreteType& output : outputs_) output.extents = inputs_[0].extents;
    arena_bytes_ = 64;
    resident_bytes_ = 1000;
    counts_->programs.add_relaxed(1);
  }
  ~TestProgram() override { counts_->programs.sub_relaxed(1); }
  bool keeps_to_a_core() const override { return keeps_to_a_core_; }

  Status execute(const device::Run& run) const {
    HEDDLE_TRY(check_operands(run));
    // No lock: the benchmarks of the runtime measure on this device.
    // No Atomic: none was made there, so a simulation would take it for what lay there before.
    auto* const users = reinterpret_cast<uint64_t*>(run.arena->address());
    if (__atomic_exchange_n(users, kArenaTaken, __ATOMIC_ACQ_REL) == kArenaTaken)
      return Status::internal("two submissions use one arena");
    counts_->most_running.max_relaxed(counts_->running.add_acq_rel(1) + 1);
    counts_->meetings.arrive(Work::kRun);
    const Status status = kernel_(run);
    counts_->running.sub_acq_rel(1);
    __atomic_store_n(users, 0, __ATOMIC_RELEASE);
    counts_->runs.add_relaxed(1);
    return status;
  }

 private:
  static constexpr uint64_t kArenaTaken = 0x7a6b5c4d3e2f1a0b;  // no tensor of a test holds it
  const Kernel kernel_;
  const Ref<Counts> counts_;
  const bool keeps_to_a_core_;
};

// What the device sees, for functions of the host.
inline View for_the_device(View view) {
  view.callers = reinterpret_cast<std::byte*>(view.address());
  view.buffer = nullptr;
  return view;
}
inline std::byte* at(const View& view) { return reinterpret_cast<std::byte*>(view.address()); }

inline Status copy_through(const device::Run& run) {
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    const View& from = run.inputs[i % run.inputs.size()];
    if (from.bytes() != 0) std::memcpy(at(run.outputs[i]), at(from), from.bytes());
  }
  return {};
}

class TestModule final : public device::Module {
 public:
  TestModule(TestDevice& device, plan::Prepared prepared, Ref<device::Source> source)
      : Module(std::move(prepared)),
        counts_(device.counts_),
        compile_(device.compile_),
        pack_(device.pack_),
        source_(std::move(source)),
        keeps_to_a_core_(device.keeps_to_a_core_) {
    const auto found = device.kernels_.find(graph().name);
    kernel_ = found == device.kernels_.end() ? copy_through : found->second;
  }

 private:
  Result<Ref<const device::Program>> lower(const ir::Graph& specialised, uint64_t,
                                           NoLocksHeld) const override {
    counts_->compilations.add_relaxed(1);
    counts_->meetings.arrive(Work::kCompile);
    if (compile_) {
      std::vector<ir::Extents> inputs;
      for (const auto& type : ir::concrete_types(specialised, specialised.inputs))
        inputs.push_back(type.extents);
      HEDDLE_TRY(compile_(inputs));
    }
    HEDDLE_TRY(pack_(ir::concrete_types(specialised, specialised.inputs)[0].extents[0], *source_));
    return Ref<const device::Program>(
        std::make_shared<TestProgram>(specialised, kernel_, counts_, keeps_to_a_core_));
  }

  const Ref<Counts> counts_;
  const std::function<Status(std::span<const ir::Extents>)> compile_;
  const TestDevice::Pack pack_;
  const Ref<device::Source> source_;
  const bool keeps_to_a_core_;
  Kernel kernel_;
};

class TestTimeline final : public device::Timeline {
 public:
  explicit TestTimeline(std::function<void()> look) : look_(std::move(look)) {}
  void look() override {
    if (look_) look_();
  }

 private:
  const std::function<void()> look_;
};

class TestQueue final : public device::Queue {
 public:
  TestQueue(bool asynchronous, void* native, std::function<void()> look, std::function<void()> copy,
            std::function<Status()> submit, Ref<Counts> counts)
      : Queue(std::make_shared<TestTimeline>(std::move(look))),
        native_(native),
        copy_(std::move(copy)),
        submit_(std::move(submit)),
        counts_(std::move(counts)) {
    counts_->queues.add_relaxed(1);
    if (asynchronous) work_.lock()->items.reserve(kRoom);
    if (asynchronous) worker_ = Thread("test-queue", [this] { work(); });
  }
  ~TestQueue() override {
    work_.lock()->ended = true;
    work_.notify_all();
    worker_.join();
    counts_->queues.sub_relaxed(1);
  }

  void* native() const override { return native_; }
  Status submit(const device::CommandList& list, uint64_t value, NoLocksHeld) override {
    counts_->meetings.arrive(Work::kSubmit);
    if (Status refused = submit_(); !refused.ok()) {
      refuse(list, refused);
      hand_on({&list, value, true});
      return refused;
    }
    if (!worker_.joinable()) return run(list, value);
    hand_on({&list, value, false});
    return {};
  }

 private:
  static constexpr size_t kRoom = 1024;
  struct Item {
    const device::CommandList* list;
    uint64_t value;
    bool refused;  // of its commands the waits count
  };
  struct Items {
    std::vector<Item> items;  // with room for kRoom: such submissions allocate nothing
    bool ended = false;
  };

  void hand_on(const Item& item) {
    if (!worker_.joinable()) return timeline()->advance(item.value, completion());
    work_.lock()->items.push_back(item);
    work_.notify_all();
  }
  Status end_refused(const Item& item) {
    for (const device::Command& command : *item.list) {
      if (const auto* wait = std::get_if<device::Wait>(&command))
        static_cast<void>(wait->point.timeline->wait(wait->point.value, Deadline::never()));
    }
    timeline()->advance(item.value, completion());
    return {};
  }
  Status run(const device::CommandList& list, uint64_t value) {
    for (const device::Command& command : list) {
      const Status status = execute(command);
      if (status.ok()) continue;
      if (status.code() == Code::device_lost) {
        timeline()->fail(status, completion());
      } else {
        timeline()->advance(value, completion());
      }
      return status;
    }
    timeline()->advance(value, completion());
    return {};
  }
  Status execute(const device::Command& command) {
    if (const auto* wait = std::get_if<device::Wait>(&command)) {
      const Status status = wait->point.timeline->wait(wait->point.value, Deadline::never());
      return status.ok() ? status
                         : Status::device_lost("it waited for a stream that failed: ", status.message());
    }
    if (const auto* run = std::get_if<device::Run>(&command)) {
      for (const auto& source : run->sources) {
        if (source->whole().ok()) continue;
        run->row_faults->record_whole(source->whole());
        return {};
      }
      Status status = static_cast<const TestProgram&>(*run->program).execute(*run);
      if (status.code() != Code::invalid || !worker_.joinable()) return status;
      run->row_faults->record_whole(status);
      return {};  // the others of its submission go on
    }
    copy_();
    if (const auto* copy = std::get_if<device::Copy>(&command)) {
      counts_->copies.add_relaxed(1);
      counts_->meetings.arrive(Work::kCopy);
      copy_view(for_the_device(copy->from), for_the_device(copy->to));
      return {};
    }
    const auto& fill = std::get<device::Fill>(command);
    counts_->meetings.arrive(Work::kFill);
    auto* to = reinterpret_cast<float*>(at(fill.to));
    std::fill(to, to + fill.to.extents.elements(), static_cast<float>(fill.value));
    return {};
  }
  void work() {
    for (;;) {
      Item item{};
      {
        auto work = work_.lock();
        work.wait([&] { return work->ended || !work->items.empty(); });
        if (work->items.empty()) return;
        item = work->items.front();
        work->items.erase(work->items.begin());
      }
      if (!timeline()->failed())
        static_cast<void>(item.refused ? end_refused(item) : run(*item.list, item.value));
    }
  }

  void* const native_;
  const std::function<void()> copy_;
  const std::function<Status()> submit_;
  const Ref<Counts> counts_;
  Guarded<Items, Rank::kHelpers> work_;
  Thread worker_;
};

inline Result<std::unique_ptr<device::Memory>> TestDevice::allocate(uint64_t bytes, device::MemoryKind kind,
                                                                    NoLocksHeld) {
  counts_->meetings.arrive(Work::kAllocate);
  if (refuse_memory_.load_acquire()) return Status::exhausted("the test device was told to have no memory");
  return std::unique_ptr<device::Memory>(
      new TestMemory(*this, kind, std::aligned_alloc(64, bytes), bytes, counts_));
}
inline Result<std::unique_ptr<device::Queue>> TestDevice::make_queue(NoLocksHeld) {
  counts_->meetings.arrive(Work::kMakeQueue);
  counts_->queues_made.add_relaxed(1);
  return std::unique_ptr<device::Queue>(
      new TestQueue(!traits_.synchronous, shows_native_ ? this : nullptr, look_, copy_, submit_, counts_));
}
inline Result<Ref<const device::Module>> TestDevice::make_module(plan::Prepared prepared,
                                                                 const device::LoadOptions&,
                                                                 Ref<device::Source> source, NoLocksHeld) {
  counts_->meetings.arrive(Work::kLoad);
  return Ref<const device::Module>(
      std::make_shared<TestModule>(*this, std::move(prepared), std::move(source)));
}

// A graph f32[batch, 4] -> f32[batch, 4].
inline ir::Graph graph_named(std::string name, size_t inputs = 1) {
  ir::Builder builder(std::move(name));
  const ir::TensorType type{ir::DType::kF32, {ir::Dim::symbol("batch"), ir::Dim(4)}};
  std::vector<ir::ValueId> ids;
  for (size_t i = 0; i < inputs; ++i) ids.push_back(builder.input(text("x", i), type));
  builder.output(*builder.node("Relu", {ids[0]}), "y");
  return *builder.take();
}

// Rows of four floats in the caller's memory.
struct Rows {
  explicit Rows(int64_t rows, float first = 0) : values(static_cast<size_t>(rows * 4)), extents{rows, 4} {
    for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  }
  View view() {
    return View::contiguous(reinterpret_cast<std::byte*>(values.data()), ir::DType::kF32, extents);
  }
  std::vector<float> values;
  ir::Extents extents;
};

inline std::vector<float> values_of(const View& view) {
  const auto* first = reinterpret_cast<const float*>(view.host());
  return {first, first + view.extents.elements()};
}

}  // namespace heddle::runtime::test
