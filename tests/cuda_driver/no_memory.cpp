// What the CUDA driver does for submissions that are over, while the host has no memory. A program by itself:
// its operator new fails where a test says so.
#include <doctest/doctest.h>

#include "base/thread.h"
#include "base/yield.h"
#include "device/plain_source_fixture.h"
#include "device/row_faults.h"
#include "drivers/cuda/cuda_device.h"
#include "drivers/cuda/watcher.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/driver_conformance/session_fixture.h"
#include "tests/host_runtime/out_of_memory_fixture.h"

namespace heddle::cuda {
namespace {

using conformance::Session;
using device::View;
using test::fails_in;

// Rows of a table by their numbers; what is no number of a row is a fault of that row.
struct Table {
  Table() {
    const auto made = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
    REQUIRE(made.ok());
    device = *made;
    ir::Builder b;
    const ir::ValueId table = b.constant(conformance::random_tensor(ir::DType::kF32, {8, 4}, 1));
    const ir::ValueId rows = b.input("rows", {ir::DType::kI64, {ir::Dim::symbol("batch")}});
    b.output(*b.node("Gather", {table, rows}));
    graph = *b.take();
    module = *device->load(graph, {}, device::plain_source(*device), NoLocksHeld());
    program = *conformance::compile(*module, {ir::Tensor::of_i64({0, 1, 2})});
  }

  // Of rows 0 to 2, one by one.
  Ref<device::RowFaults> submit(Session& session, const std::vector<int64_t>& rows, uint64_t& value) {
    const auto faults = std::make_shared<device::RowFaults>(3);
    device::CommandList list;
    const auto arena = session.arena_for(*program);
    REQUIRE(arena.ok());
    const View out = conformance::empty_like(*device, ir::DType::kF32, {3, 4});
    list.run(program, *arena, {conformance::upload(*device, ir::Tensor::of_i64(rows))}, {out}, faults);
    value = session.next_value();
    REQUIRE(session.queue().submit(list, value, NoLocksHeld()).ok());
    lists.push_back(std::move(list));  // runs are read when they are over
    return faults;
  }

  Ref<device::Device> device;
  ir::Graph graph;
  Ref<const device::Module> module;
  Ref<const device::Program> program;
  std::vector<device::CommandList> lists;
};

void look_without_memory(device::Timeline& timeline, uint64_t value) {
  fails_in = -1;
  while (!timeline.done(value) && !timeline.failed()) {
    timeline.look();
    give_way();
  }
  fails_in = 0;
}

TEST_CASE("submissions that are over are seen without memory of the host, and their room is used again") {
  Table table;
  Session session(*table.device);
  device::Timeline& timeline = *session.queue().timeline();
  uint64_t value = 0;
  for (int round = 0; round < 5; ++round) {
    std::vector<Ref<device::RowFaults>> faults;
    for (int i = 0; i < 4; ++i) faults.push_back(table.submit(session, {0, 7, 3}, value));
    look_without_memory(timeline, value);
    CHECK(timeline.done(value));
    for (const auto& each : faults) {
      CHECK(each->count() == 0);
      CHECK(each->whole().ok());
    }
  }
  CHECK(session.run(table.program, std::vector<ir::Tensor>{ir::Tensor::of_i64({0, 1, 2})}).ok());
}

TEST_CASE("a row's fault that finds no memory is one of the whole run, and the queue goes on") {
  Table table;
  Session session(*table.device);
  uint64_t value = 0;
  const auto told = table.submit(session, {0, 8, 3}, value);
  REQUIRE(session.queue().timeline()->wait(value, Deadline::never()).ok());
  CHECK(told->of(1).code() == heddle::Code::invalid);
  const auto poor = table.submit(session, {0, 8, 3}, value);
  look_without_memory(*session.queue().timeline(), value);
  CHECK(session.queue().timeline()->done(value));
  CHECK(poor->whole().code() == heddle::Code::exhausted);
  const auto after = table.submit(session, {0, 5, 9}, value);
  REQUIRE(session.queue().timeline()->wait(value, Deadline::never()).ok());
  CHECK(after->of(2).code() == heddle::Code::invalid);
  CHECK(after->count() == 1);
}

// Over when it has been looked at so often.
class Looked final : public Watched {
 public:
  Looked(Ref<Watcher> watcher, device::Completion key) : Watched(std::move(watcher)), key_(key) {}
  void look() override {
    if (++looks_ == 20) advance(1, key_);
  }

 private:
  const device::Completion key_;
  int looks_ = 0;
};
class LookedQueue final : public device::Queue {
 public:
  explicit LookedQueue(const Ref<Watcher>& watcher)
      : Queue(std::make_shared<Looked>(watcher, completion())) {}
  Status submit(const device::CommandList&, uint64_t, NoLocksHeld) override { return {}; }
};

TEST_CASE("the thread that looks for those who sleep needs no memory of the host") {
  const auto watcher = std::make_shared<Watcher>(0);
  const Thread thread("watcher", [&] {
    fails_in = -1;
    watcher->run();
    fails_in = 0;
  });
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<LookedQueue>> queues;
    for (int i = 0; i < 10; ++i) queues.push_back(std::make_unique<LookedQueue>(watcher));
    for (const auto& each : queues) CHECK(each->timeline()->wait(1, Deadline::never()).ok());
  }
  watcher->stop();
}

}  // namespace
}  // namespace heddle::cuda
