// What a call may bring, on devices that can name it where it lies and on devices that cannot.
#include "runtime/binding.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/thread.h"
#include "runtime/runtime.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {
namespace {

using device::MemoryKind;
using device::View;
using test::Rows;
using test::TestDevice;

struct Kind {
  const char* name;
  test::TestOptions options;
};
const Kind kDevices[] = {
    {"synchronous, binds all", {}},
    {"synchronous, stages", {.binds_caller_memory = false}},
    {"synchronous, whole buffers", {.binds_caller_memory = false, .binds_offsets = false}},
    {"asynchronous, binds all", {.asynchronous = true}},
    {"asynchronous, stages", {.asynchronous = true, .binds_caller_memory = false}},
    {"discrete", {.asynchronous = true, .binds_caller_memory = false, .unified = false}},
    {"discrete, whole buffers",
     {.asynchronous = true, .binds_caller_memory = false, .binds_offsets = false, .unified = false}},
    {"discrete, synchronous", {.binds_caller_memory = false, .unified = false}},
};

struct BindingFixture {
  explicit BindingFixture(test::TestOptions options, const Options& runtime_options = {}) {
    static Atomic<int> next{0};
    options.name = text("binding-test", next.add_relaxed(1));
    device = std::make_shared<TestDevice>(options);
    device->set_kernel("twice", [this](const device::Run& run) {
      const auto* x = reinterpret_cast<const float*>(test::at(run.inputs[0]));
      auto* y = reinterpret_cast<float*>(test::at(run.outputs[0]));
      for (int64_t i = 0; i < run.outputs[0].extents.elements(); ++i) y[i] = 2 * x[i];
      inside.arrive();
      if (test::Latch* const closed = latch.load_acquire()) closed->wait();
      const auto seen = addresses.lock();
      seen->push_back(run.inputs[0].address());
      seen->push_back(run.arena->address());
      return Status();
    });
    runtime = *Runtime::make(device, runtime_options);
    model = *runtime->load(test::graph_named("twice"));
  }
  Result<std::vector<View>> run(const View& x, Call call = {}) {
    call.inputs = {&x, 1};
    return runtime->run(*model, call);
  }
  // In memory of the device, as another call would find it.
  View on_device(Rows& rows) {
    View made = *runtime->allocate(ir::DType::kF32, rows.extents);
    REQUIRE(runtime->copy(**runtime->streams().default_stream(), rows.view(), made).ok());
    return made;
  }
  std::vector<float> read(const View& view) {
    Rows to(view.extents[0]);
    REQUIRE(runtime->copy(**runtime->streams().default_stream(), view, to.view()).ok());
    return to.values;
  }

  // Runs wait here until `times` of them are inside; 0: they do not.
  struct Inside {
    void arrive() {
      if (times.load_acquire() == 0) return;
      auto state = here.lock();
      if (++*state == times.load_acquire()) {
        times.store_release(0);
        *state = 0;
        here.notify_all();
        return;
      }
      state.wait([&] { return times.load_acquire() == 0; });
    }
    Atomic<int> times{0};
    Guarded<int, Rank::kLog> here;
  } inside;
  Atomic<test::Latch*> latch{nullptr};                   // where a run waits
  Guarded<std::vector<uint64_t>, Rank::kLog> addresses;  // of inputs and arenas, run by run
  Ref<TestDevice> device;
  Ref<Runtime> runtime;
  Ref<Model> model;
};

std::vector<float> doubled(std::vector<float> values) {
  for (float& value : values) value *= 2;
  return values;
}

}  // namespace

TEST_CASE("memory of the caller's is named where it has as many bytes as the device needs, or more") {
  const TestDevice device({.caller_bytes = 16});
  for (const int64_t floats : {3, 4, 5}) {
    Rows rows(1);
    rows.values.resize(static_cast<size_t>(floats));
    rows.extents = {1, floats};
    CHECK(can_name(device, rows.view()) == (floats >= 4));
  }
}

TEST_CASE("results of inputs in the host's memory can be read by the host, on every device") {
  for (const Kind& kind : kDevices) {
    CAPTURE(kind.name);
    BindingFixture f(kind.options);
    for (int64_t rows = 1; rows < 5; ++rows) {
      Rows x(rows, static_cast<float>(rows));
      const auto y = f.run(x.view());
      REQUIRE_MESSAGE(y.ok(), to_string(y.status()));
      REQUIRE(y->front().host() != nullptr);
      CHECK(test::values_of(y->front()) == doubled(x.values));
    }
  }
}

TEST_CASE("an input in device memory is used where it lies, and its result lies there") {
  for (const Kind& kind : kDevices) {
    CAPTURE(kind.name);
    BindingFixture f(kind.options);
    Rows x(3, 7);
    const View held = f.on_device(x);
    const auto y = f.run(held);
    REQUIRE_MESSAGE(y.ok(), to_string(y.status()));
    CHECK(f.addresses.lock()->front() == held.address());
    CHECK((y->front().host() != nullptr) == kind.options.unified);
    CHECK(f.read(y->front()) == doubled(x.values));
  }
}

TEST_CASE("strided inputs, parts of buffers, and memory off its element's grid give the same values") {
  for (const Kind& kind : kDevices) {
    CAPTURE(kind.name);
    BindingFixture f(kind.options);
    Rows all(4, 1);
    View every_other = all.view(), part = f.on_device(all), strided = part;
    every_other.extents = strided.extents = {2, 4};
    every_other.strides = strided.strides = {8, 1};
    part.extents = {2, 4};
    part.offset = 2 * 4 * sizeof(float);
    std::vector<std::byte> bytes(1 + 4 * sizeof(float));
    std::memcpy(bytes.data() + 1, all.values.data(), 4 * sizeof(float));
    View odd = View::contiguous(bytes.data() + 1, ir::DType::kF32, {1, 4});
    const auto slice = [&](std::vector<size_t> rows) {
      std::vector<float> values;
      for (const size_t row : rows) {
        for (size_t i = 0; i < 4; ++i) values.push_back(2 * all.values[4 * row + i]);
      }
      return values;
    };
    const std::pair<View, std::vector<float>> cases[] = {
        {every_other, slice({0, 2})}, {strided, slice({0, 2})}, {part, slice({2, 3})}, {odd, slice({0})}};
    for (const auto& [view, wanted] : cases) {
      const auto y = f.run(view);
      REQUIRE_MESSAGE(y.ok(), to_string(y.status()));
      CHECK(f.read(y->front()) == wanted);
    }
  }
}

TEST_CASE("given outputs are written, in the caller's memory, a buffer, or a part of one") {
  for (const Kind& kind : kDevices) {
    CAPTURE(kind.name);
    BindingFixture f(kind.options);
    Rows x(2, 3), callers(2), zeros(4);
    const View to_callers = callers.view(), buffer = f.on_device(zeros);
    REQUIRE(f.run(x.view(), {.outputs = {&to_callers, 1}}).ok());
    CHECK(callers.values == doubled(x.values));
    View part = buffer;
    part.extents = {2, 4};
    part.offset = 2 * 4 * sizeof(float);
    REQUIRE(f.run(x.view(), {.outputs = {&part, 1}}).ok());
    const std::vector<float> all = f.read(buffer);
    CHECK(std::vector<float>(all.begin() + 8, all.end()) == doubled(x.values));
  }
}

TEST_CASE("a call waits for its results where it names memory of the caller, and nowhere else") {
  enum class To : uint8_t { fresh, device, beside_the_input, caller };
  for (const bool callers_input : {false, true}) {
    for (const To to : {To::fresh, To::device, To::beside_the_input, To::caller}) {
      CAPTURE(callers_input);
      CAPTURE(static_cast<int>(to));
      BindingFixture f({.asynchronous = true});
      const auto host = std::make_shared<Rows>(3, 1.0F), other = std::make_shared<Rows>(2);
      const View all = callers_input ? host->view() : f.on_device(*host);
      View in = all, out = to == To::caller ? other->view() : f.on_device(*other);
      in.extents = {2, 4};
      if (to == To::beside_the_input) {
        out = in;
        constexpr uint64_t kRow = 4 * sizeof(float);
        if (callers_input) {
          out.callers += kRow;
        } else {
          out.offset += kRow;
        }
      }
      Call call;
      if (to != To::fresh) call.outputs = {&out, 1};
      call.wait = false;
      call.deadline = Deadline::at(TimePoint());  // of what there is to wait for
      call.keep = std::make_shared<std::pair<Ref<Rows>, Ref<Rows>>>(host, other);
      test::Latch latch;
      f.latch.store_release(&latch);
      const auto y = f.run(in, call);
      const bool names_callers = callers_input || to == To::caller;
      CHECK(y.status().code() == (names_callers ? Code::deadline : Code::ok));
      latch.open();
      CHECK(f.runtime->synchronize().ok());
    }
  }
}

TEST_CASE("memory of another device comes and goes through staging, after the work on it") {
  for (const Kind& kind : kDevices) {
    CAPTURE(kind.name);
    BindingFixture f(kind.options), other({.asynchronous = true});
    Rows x(2, 11);
    const View foreign = other.on_device(x);
    const auto y = f.run(foreign);
    REQUIRE_MESSAGE(y.ok(), to_string(y.status()));
    CHECK(f.read(y->front()) == doubled(x.values));
    const View there = *other.runtime->allocate(ir::DType::kF32, {2, 4});
    REQUIRE(f.run(x.view(), {.outputs = {&there, 1}}).ok());
    CHECK(other.read(there) == doubled(x.values));
  }
}

TEST_CASE("a slot forgets the mistake of a run whose values went through it") {
  Options one;
  one.in_flight = 1;
  BindingFixture f({.asynchronous = true, .binds_caller_memory = false, .binds_offsets = false}, one);
  f.device->set_kernel("wrong", [](const device::Run&) { return Status::invalid("an index is outside"); });
  const auto wrong = *f.runtime->load(test::graph_named("wrong"));
  Rows x(4, 1);
  const View in = f.on_device(x);
  const auto lease = *f.runtime->streams().lease();
  const auto bad = f.runtime->run(*wrong, {.inputs = {&in, 1}, .stream = &*lease, .wait = false});
  REQUIRE(bad.ok());
  View part = bad->front();  // goes through a slot, and takes the mistake with it
  part.extents = {2, 4};
  part.offset = 2 * 4 * sizeof(float);
  CHECK(f.run(part, {.stream = &*lease}).status().code() == Code::invalid);
  Rows good(2, 9);  // of the size that the slot has room for
  for (int i = 0; i < 4; ++i) {
    const auto y = f.run(good.view());
    REQUIRE_MESSAGE(y.ok(), to_string(y.status()));
    CHECK(test::values_of(y->front()) == doubled(good.values));
  }
}

TEST_CASE("a mistake comes along to memory of another device, which can be written again") {
  BindingFixture f({.asynchronous = true, .binds_caller_memory = false, .unified = false});
  BindingFixture other({.asynchronous = true});
  for (BindingFixture* each : {&f, &other})
    each->device->set_kernel("wrong",
                             [](const device::Run&) { return Status::invalid("an index is outside"); });
  const auto wrong = *f.runtime->load(test::graph_named("wrong"));
  const auto wrong_there = *other.runtime->load(test::graph_named("wrong"));
  Rows x(2, 1);
  const View in = f.on_device(x), there = *other.runtime->allocate(ir::DType::kF32, {2, 4});
  Stream& stream = **f.runtime->streams().default_stream();
  const auto bad = f.runtime->run(*wrong, {.inputs = {&in, 1}, .stream = &stream, .wait = false});
  REQUIRE(bad.ok());
  CHECK(f.runtime->copy(stream, bad->front(), there).code() == Code::invalid);

  const View there_in = other.on_device(x);
  Stream& there_stream = **other.runtime->streams().default_stream();
  REQUIRE(
      other.runtime
          ->run(*wrong_there,
                {.inputs = {&there_in, 1}, .outputs = {&there, 1}, .stream = &there_stream, .wait = false})
          .ok());
  CHECK(other.runtime->synchronize().ok());
  CHECK(there.buffer->fault().code() == Code::invalid);
  REQUIRE(f.runtime->copy(stream, in, there).ok());
  CHECK(there.buffer->fault().ok());
  CHECK(other.read(there) == x.values);
}

TEST_CASE("memory of another device that the host cannot address is refused, with what to do") {
  BindingFixture f({}), other({.asynchronous = true, .binds_caller_memory = false, .unified = false});
  Rows x(2, 11);
  const Status refused = f.run(other.on_device(x)).status();
  CHECK(refused.code() == Code::invalid);
  CHECK(refused.message().find("copy it to the host") != std::string::npos);
}

TEST_CASE("runs of one shape find their slot where the last one found it") {
  for (const Kind& kind : kDevices) {
    if (kind.options.binds_caller_memory) continue;
    CAPTURE(kind.name);
    BindingFixture f(kind.options, [] {
      Options one;
      one.in_flight = 1;
      return one;
    }());
    for (int i = 0; i < 10; ++i) {
      Rows x(3, static_cast<float>(i));
      REQUIRE(f.run(x.view()).ok());
    }
    const std::vector<uint64_t> seen = *f.addresses.lock();
    REQUIRE(seen.size() == 20);
    for (size_t i = 2; i < seen.size(); ++i) CHECK(seen[i] == seen[i % 2]);
  }
}

TEST_CASE("what slots hold is the allocator's: it counts, is limited, and idle slots go first") {
  Options options;
  options.memory_fraction = 0.5;
  BindingFixture f({.asynchronous = true, .binds_caller_memory = false, .memory_bytes = 1 << 20}, options);
  Rows x(2000, 1);
  REQUIRE(f.run(x.view()).ok());
  CHECK(f.runtime->stats().slot_bytes >= 2000 * 4 * sizeof(float));
  CHECK(test::bytes_of_tensors(*f.runtime) == 0);
  const auto most = f.runtime->allocate((1 << 19) - (1 << 14));  // fits only without the idle slot
  REQUIRE_MESSAGE(most.ok(), to_string(most.status()));
  CHECK(f.runtime->stats().slot_bytes == 0);
  CHECK(f.run(x.view()).status().code() == Code::exhausted);
}

// All lanes at once, so that each has a slot.
void run_on_all_lanes(BindingFixture& f, int lanes, int64_t rows) {
  Atomic<int> right{0};
  f.inside.times.store_release(lanes);
  run_together(lanes, [&](int thread) {
    Rows x(rows, static_cast<float>(thread));
    const auto y = f.run(x.view());
    if (y.ok() && test::values_of(y->front()) == doubled(x.values)) right.add_relaxed(1);
  });
  CHECK(right.load_relaxed() == lanes);
}

TEST_CASE("an emptied cache keeps tensors and weights only, whatever lanes have run") {
  constexpr int kLanes = 32;
  BindingFixture f({.binds_caller_memory = false, .lanes = kLanes});
  for (int round = 0; round < 2; ++round) {
    run_on_all_lanes(f, kLanes, 100);
    const View kept = *f.runtime->allocate(ir::DType::kF32, {1000});
    CHECK(f.runtime->stats().slot_bytes >= kLanes * (100 * 4 * sizeof(float) + 64));
    f.runtime->allocator().empty_cache();
    const auto stats = f.runtime->stats();
    CHECK(stats.slot_bytes == 0);
    CHECK(stats.memory.reserved == kept.buffer->memory().bytes());
    CHECK(stats.governor.entered == static_cast<uint64_t>((round + 1) * kLanes));
    CHECK(stats.governor.in_flight == 0);
    CHECK(f.device->counts().memory.load_acquire() == 1);
  }
}

TEST_CASE("the slot of a lane that a call has is kept, and a hold keeps those of all") {
  BindingFixture f({.binds_caller_memory = false, .lanes = 4});
  run_on_all_lanes(f, 4, 10);
  test::Latch latch;
  f.latch.store_release(&latch);
  Rows x(10, 1);
  Result<std::vector<View>> y = Status::internal("never ran");
  {
    const Thread caller("caller", [&] { y = f.run(x.view()); });
    test::wait_until([&] { return latch.arrived() == 1; });
    const uint64_t of_four = f.runtime->stats().slot_bytes;
    f.runtime->allocator().empty_cache();
    CHECK(f.runtime->stats().slot_bytes == of_four / 4);
    f.latch.store_release(nullptr);
    latch.open();
  }
  REQUIRE(y.ok());
  CHECK(test::values_of(y->front()) == doubled(x.values));
  {
    const auto hold = f.runtime->governor().exclusive(Deadline::never());
    REQUIRE(hold.ok());
    f.runtime->allocator().empty_cache();
    CHECK(f.runtime->stats().slot_bytes > 0);
  }
  f.runtime->allocator().empty_cache();
  CHECK(f.runtime->stats().slot_bytes == 0);
}

TEST_CASE("calls give right values while others empty the cache again and again") {
  BindingFixture f({.binds_caller_memory = false, .lanes = 3});
  Atomic<int> right{0}, callers{4};
  run_together(5, [&](int thread) {
    if (thread == 0) {
      while (callers.load_acquire() > 0) f.runtime->allocator().empty_cache();
      return;
    }
    for (int i = 0; i < 300; ++i) {
      Rows x(1 + (thread + i) % 5, static_cast<float>(1000 * thread + i));
      const auto y = f.run(x.view());
      if (y.ok() && test::values_of(y->front()) == doubled(x.values)) right.add_relaxed(1);
    }
    callers.sub_acq_rel(1);
  });
  CHECK(right.load_relaxed() == 1200);
  CHECK(f.device->counts().runs.load_relaxed() == 1200);
  f.runtime->allocator().empty_cache();
  CHECK(f.runtime->stats().memory.reserved == 0);
}

TEST_CASE("an output lies beside the inputs, or where one lies as a whole if the program may share it") {
  class FirstSharesFirst final : public device::Program {
   public:
    bool may_share(size_t output, size_t input) const override { return output == 0 && input == 0; }
  } const program;
  Rows rows(4, 1);
  const View whole = rows.view();
  View begin = whole, end = whole;
  begin.extents = end.extents = {2, 4};
  end.callers += begin.bytes();
  CHECK(may_write_beside(program, 0, whole, 0, whole));
  CHECK_FALSE(may_write_beside(program, 1, whole, 0, whole));
  CHECK_FALSE(may_write_beside(program, 0, begin, 0, whole));
  CHECK_FALSE(may_write_beside(program, 0, whole, 0, begin));
  CHECK_FALSE(may_write_beside(program, 0, end, 0, whole));
  CHECK(may_write_beside(program, 1, begin, 0, end));
}

TEST_CASE("a slot grows without a permit: a pressure callback may call models meanwhile") {
  for (const bool asynchronous : {false, true}) {
    Options options;
    options.in_flight = 1;
    options.memory_fraction = 0.5;
    BindingFixture f({.asynchronous = asynchronous, .binds_caller_memory = false, .memory_bytes = 1 << 20},
                     options);
    Rows one(1, 5), many(6000, 1);
    REQUIRE(f.run(one.view()).ok());
    Ref<device::Buffer> hoard = *f.runtime->allocate(400 << 10);
    Atomic<int> right{0};
    f.runtime->allocator().on_pressure([&](uint64_t) {
      const auto y = f.run(one.view());
      if (y.ok() && test::values_of(y->front()) == doubled(one.values)) right.add_relaxed(1);
      hoard = nullptr;
    });
    const auto y = f.run(many.view());
    REQUIRE_MESSAGE(y.ok(), to_string(y.status()));
    CHECK(test::values_of(y->front()) == doubled(many.values));
    CHECK(right.load_relaxed() == 1);
  }
}

TEST_CASE("threads that bring host memory to a discrete device get their own values, none lost") {
  for (const Kind& kind : kDevices) {
    CAPTURE(kind.name);
    BindingFixture f(kind.options);
    Atomic<int64_t> right{0};
    run_together(6, [&](int thread) {
      for (int i = 0; i < 200; ++i) {
        Rows x(1 + (thread + i) % 5, static_cast<float>(1000 * thread + i));
        const auto y = f.run(x.view());
        if (y.ok() && test::values_of(y->front()) == doubled(x.values)) right.add_relaxed(1);
      }
    });
    CHECK(right.load_relaxed() == 1200);
    CHECK(f.device->counts().runs.load_relaxed() == 1200);
  }
}

}  // namespace heddle::runtime
