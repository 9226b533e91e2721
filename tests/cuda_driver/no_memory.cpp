// What the CUDA driver does for submissions that are over, while the host has no memory. A program by itself:
// its operator new fails where a test says so.
#include <doctest/doctest.h>

#include <cstring>
#include <utility>

#include "base/thread.h"
#include "base/yield.h"
#include "device/plain_source_fixture.h"
#include "device/row_faults.h"
#include "drivers/cuda/cuda_device.h"
#include "drivers/cuda/watcher.h"
#include "graphs_fixture.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/driver_conformance/session_fixture.h"
#include "tests/host_runtime/poor_submission_fixture.h"

namespace heddle::cuda {
namespace {

using conformance::Session;
using device::View;
using heddle::test::fails_in;
using heddle::test::PoorSubmission;
using heddle::test::submit_poorly;

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

// ---- what a thread submits that lacks memory

// The double's functions, whose own memory is CUDA's: it does not lack.
template <auto kMember, class... A>
Code apart(A... arguments) {
  const int64_t kept = std::exchange(fails_in, 0);
  const Code code = (cuda_double::api().*kMember)(arguments...);
  fails_in = kept;
  return code;
}
template <auto kMember, class... A>
void put(DriverApi& api, Code (*DriverApi::*)(A...)) {
  if (cuda_double::api().*kMember != nullptr) api.*kMember = &apart<kMember, A...>;
}
const DriverApi& api_apart() {
  static const DriverApi made = [] {
    DriverApi api;
#define HEDDLE_APART(member, symbol, arguments) put<&DriverApi::member>(api, &DriverApi::member);
    HEDDLE_CUDA_FUNCTIONS(HEDDLE_APART)
    HEDDLE_CUDA_NEWER_FUNCTIONS(HEDDLE_APART)
#undef HEDDLE_APART
    return api;
  }();
  return made;
}

// The second run at a place is the one that a graph is built for.
bool second_run_is_right(int64_t n, bool from_there, int& without_graph) {
  const ir::Tensor x = graphs_fixture::rows_of(4, 7);
  static const ir::Tensor wanted = graphs_fixture::launched_directly(x);
  const int graphs = cuda_double::live_graphs();
  PoorSubmission poor;
  {
    const auto device = graphs_fixture::device_of({.api = &api_apart(), .graph_bytes = 64 << 20});
    const auto program = graphs_fixture::layers(*device, 4);
    Session session(*device);
    const graphs_fixture::Staged staged(*device, *program, x);
    REQUIRE(staged.submit(session, program).ok());
    CHECK(staged.holds(wanted));
    std::memset(staged.out.host(), 0, staged.out.bytes());
    const device::CommandList list = staged.list_for(program);
    const uint64_t value = session.next_value();
    poor = submit_poorly(session.queue(), list, value, n, from_there);
    const Status over = session.queue().timeline()->wait(value, Deadline::in(std::chrono::seconds(10)));
    CHECK(over.code() != heddle::Code::deadline);
    REQUIRE(poor.status.has_value());  // nothing was thrown
    CHECK((poor.status->ok() || poor.reached));
    CHECK(over.ok() == !session.queue().timeline()->failed());
    without_graph += poor.status->ok() && cuda_double::calls_of(cuda_double::Call::kGraphLaunch) == 0 ? 1 : 0;
    if (poor.status->ok() && over.ok()) CHECK(staged.holds(wanted));
    Session after(*device);
    CHECK(staged.submit(after, program).ok());
    CHECK(staged.holds(wanted));
  }
  CHECK(cuda_double::live_graphs() == graphs);
  return poor.reached;
}

TEST_CASE("a run whose graph finds no memory is launched step by step and nothing stays behind") {
  int without_graph = 0;
  for (const bool from_there : {false, true}) {
    CAPTURE(from_there);
    bool reached = true;
    for (int64_t n = 1; reached; ++n) {
      CAPTURE(n);
      reached = second_run_is_right(n, from_there, without_graph);
    }
  }
  CHECK(without_graph > 0);
}

TEST_CASE("a submission for which there is no memory waits for the place of one that is over") {
  const auto made = make_cuda_device({.api = &api_apart(), .image = cuda_double::image()});
  REQUIRE(made.ok());
  const EventHandle event = cuda_double::make_held_event();
  const auto begins = (*made)->import_event({event, 0, nullptr}, NoLocksHeld());
  REQUIRE(begins.ok());
  const View view = conformance::empty_like(**made, ir::DType::kF32, {8});
  const auto queue = *(*made)->make_queue(NoLocksHeld());
  device::CommandList first, second;
  first.wait(*begins);
  first.fill(view, 1);
  second.fill(view, 2);
  REQUIRE(queue->submit(first, 1, NoLocksHeld()).ok());
  PoorSubmission poor;
  {
    const Thread thread("poor", [&] { poor = submit_poorly(*queue, second, 2, -1, true); });
    CHECK(queue->timeline()->wait(2, Deadline::in(std::chrono::milliseconds(3))).code() ==
          heddle::Code::deadline);
    cuda_double::reach(event);
  }
  // Taken, or its queue has failed: some of it may have been enqueued.
  const Status over = queue->timeline()->wait(2, Deadline::in(std::chrono::seconds(10)));
  CHECK(over.code() != heddle::Code::deadline);
  REQUIRE(poor.status.has_value());
  CHECK(over.ok() == poor.status->ok());
  if (over.ok()) CHECK(conformance::download(**made, view).get(7) == 2);
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
