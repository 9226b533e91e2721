// Memory pressure while a model compiles: its callbacks may call any model, the one that compiles, too.
#include <doctest/doctest.h>

#include "base/once_map.h"
#include "base/thread.h"
#include "runtime/runtime.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {
namespace {

using namespace std::chrono_literals;
using test::Rows;
using test::TestDevice;

constexpr uint64_t kMemory = 1 << 20, kPacked = 256 << 10;

// A model whose weights are packed once for all its shapes, as the host's are, by the first compilation. The
// memory for that is there only when `hoard` goes.
struct PackingModel {
  PackingModel() {
    static Atomic<int> next{0};
    device = std::make_shared<TestDevice>(
        test::TestOptions{.memory_bytes = kMemory, .name = text("packing", next.add_relaxed(1))});
    device->set_pack([this](int64_t rows, device::Source& source) {
      packs.at(static_cast<size_t>(rows)).add_acq_rel(1);
      return packed
          .get_or_make(1,
                       [&]() -> Result<Ref<const Ref<device::Buffer>>> {
                         HEDDLE_TRY_ASSIGN(Ref<device::Buffer> made, source.allocate(kPacked));
                         return std::make_shared<const Ref<device::Buffer>>(std::move(made));
                       })
          .status();
    });
    runtime = *Runtime::make(device);
    model = *runtime->load(test::graph_named("packing"));
    hoard = *runtime->allocate(kMemory - kPacked / 2);
  }
  ~PackingModel() { packed.clear(); }
  Status run(int64_t rows, Deadline deadline = Deadline::never()) {
    Rows x(rows, static_cast<float>(rows));
    const device::View view = x.view();
    Call call;
    call.inputs = {&view, 1};
    call.deadline = deadline;
    HEDDLE_TRY_ASSIGN(const auto y, runtime->run(*model, call));
    return test::values_of(y[0]) == x.values ? Status() : Status::internal("wrong values");
  }

  std::array<Atomic<int>, 8> packs;  // begun, by rows
  OnceMap<int, Ref<device::Buffer>> packed;
  Ref<TestDevice> device;
  Ref<Runtime> runtime;
  Ref<Model> model;
  Ref<device::Buffer> hoard;
};

TEST_CASE("a pressure callback may call the model and the shape whose compilation needs the memory") {
  PackingModel m;
  int calls = 0;
  Status inner = Status::internal("never called");
  m.runtime->allocator().on_pressure([&](uint64_t bytes) {
    ++calls;
    CHECK(bytes == kPacked);
    m.hoard = nullptr;
    inner = m.run(1);
  });
  const Status outer = m.run(1);
  CHECK_MESSAGE(outer.ok(), to_string(outer));
  CHECK_MESSAGE(inner.ok(), to_string(inner));
  CHECK(calls == 1);
}

TEST_CASE("what a pressure callback asks for itself, and does not get, calls no callback again") {
  PackingModel m;
  int calls = 0;
  Status inner;
  m.runtime->allocator().on_pressure([&](uint64_t) {
    ++calls;
    if (calls < 10) inner = m.runtime->allocate(kMemory).status();
  });
  CHECK(m.runtime->allocate(kMemory).status().code() == Code::exhausted);
  CHECK(inner.code() == Code::exhausted);
  CHECK(calls == 1);
  CHECK(m.runtime->allocate(kMemory).status().code() == Code::exhausted);
  CHECK(calls == 2);
}

TEST_CASE("who keeps slots is asked for them while it lives, and forgotten when the next one comes") {
  PackingModel m;
  auto owner = std::make_shared<int>();
  const auto held = std::make_shared<int>();
  int asked = 0;
  m.runtime->slots().also_ask(owner, [&asked, held] { ++asked; });
  m.runtime->slots().drop_idle();
  CHECK(asked == 1);
  owner.reset();
  m.runtime->slots().drop_idle();
  CHECK(asked == 1);
  CHECK(held.use_count() == 2);
  m.runtime->slots().also_ask(held, [] {});
  CHECK(held.use_count() == 1);
}

TEST_CASE("who come to keep slots on several threads are each asked, once each time") {
  PackingModel m;
  constexpr int kThreads = 4, kEach = 50;
  std::vector<std::shared_ptr<Atomic<int>>> asked(kThreads * kEach);
  run_together(kThreads, [&](int thread) {
    for (int i = 0; i < kEach; ++i) {
      auto& mine = asked[static_cast<size_t>(thread * kEach + i)];
      mine = std::make_shared<Atomic<int>>(0);
      m.runtime->slots().also_ask(mine, [counts = mine.get()] { counts->add_relaxed(1); });
    }
  });
  m.runtime->slots().drop_idle();
  for (const auto& each : asked) CHECK(each->load_relaxed() == 1);
}

TEST_CASE("a pressure callback may wait for a compilation that needs what the interrupted one makes") {
  PackingModel m;
  test::Latch other_begins;
  Atomic<bool> first{true};
  Status inner = Status::internal("never called"), other = inner;
  m.runtime->allocator().on_pressure([&](uint64_t) {
    if (!first.exchange_acq_rel(false)) return;
    m.hoard = nullptr;
    other_begins.open();
    // The other thread compiles for two rows; its packing waits for ours, if ours is still going on.
    test::wait_until([&] { return m.packs[2].load_acquire() > 0; });
    inner = m.run(2, Deadline::in(2s));  // a deadline, so that a circle of waits fails the test
  });
  {
    const Thread thread("other", [&] {
      other_begins.wait();
      other = m.run(2);
    });
    const Status outer = m.run(1);
    CHECK_MESSAGE(outer.ok(), to_string(outer));
  }
  CHECK_MESSAGE(inner.ok(), to_string(inner));
  CHECK_MESSAGE(other.ok(), to_string(other));
  CHECK(m.packed.stats().makes == 1);
}

TEST_CASE("a compilation for which no callback frees anything is exhausted for all who wait") {
  PackingModel m;
  Atomic<int> calls{0}, refused{0};
  m.runtime->allocator().on_pressure([&](uint64_t) { calls.add_relaxed(1); });
  run_together(4, [&](int) {
    if (m.run(1).code() == Code::exhausted) refused.add_relaxed(1);
  });
  CHECK(refused.load_relaxed() == 4);
  CHECK(calls.load_relaxed() >= 1);
  m.hoard = nullptr;
  CHECK(m.run(1).ok());
}

TEST_CASE("a shape that is too large for the device runs no callback") {
  PackingModel m;
  int calls = 0;
  m.runtime->allocator().on_pressure([&](uint64_t) { ++calls; });
  const ir::Extents huge{int64_t{1} << 20, 4};
  CHECK(m.runtime->compile(*m.model, std::span(&huge, 1)).code() == Code::exhausted);
  CHECK(calls == 0);
}

}  // namespace
}  // namespace heddle::runtime
