// Faults on request, and what the simulated device does with time.
#include "base/thread.h"
#include "base/yield.h"
#include "rig_fixture.h"

namespace heddle::sim::test {
TEST_CASE("the nth allocation is refused, and the one after it is not") {
  Rig rig;
  rig.device->faults().arm(Fault::kAllocation, 3);
  const auto source = device::plain_source(*rig.device);
  CHECK(source->allocate(64).ok());
  CHECK(source->allocate(64, MemoryKind::staging).ok());
  CHECK(source->allocate(64).status().code() == Code::exhausted);
  CHECK(source->allocate(64).ok());
}

TEST_CASE("memory is refused by its kind, from a time on until the faults are reset") {
  Rig rig;
  const auto source = device::plain_source(*rig.device);
  rig.device->faults().arm_from(Fault::kStagingMemory, 2);
  rig.device->faults().arm(Fault::kDeviceMemory, 1);
  CHECK(source->allocate(64, MemoryKind::staging).ok());
  CHECK(source->allocate(64).status().code() == Code::exhausted);
  for (int i = 0; i < 3; ++i)
    CHECK(source->allocate(64, MemoryKind::staging).status().code() == Code::exhausted);
  CHECK(source->allocate(64).ok());
  rig.device->faults().reset();
  CHECK(source->allocate(64, MemoryKind::staging).ok());
}

TEST_CASE(
    "a queue, a model and a submission are refused once, and the submission has its place all the same") {
  Rig rig;
  rig.device->faults().set(Fault::kQueue, true);
  CHECK(rig.device->make_queue(NoLocksHeld{}).status().code() == Code::exhausted);
  rig.device->faults().set(Fault::kLoad, true);
  const auto source = device::plain_source(*rig.device);
  CHECK(rig.device->load(two_products(), {}, source, NoLocksHeld{}).status().code() == Code::unavailable);
  CHECK(rig.device->load(two_products(), {}, source, NoLocksHeld{}).ok());
  auto queue = rig.queue();
  const View view = rig.vector(4);
  const CommandList first = filling(view, 1), second = filling(view, 2);
  rig.device->faults().set(Fault::kSubmit, true);
  CHECK(queue->submit(first, 1, NoLocksHeld{}).code() == Code::unavailable);
  REQUIRE(queue->submit(second, 2, NoLocksHeld{}).ok());
  CHECK(wait(*queue, 2).ok());
  CHECK(rig.device->stats().commands == 1);
  CHECK(rig.found_nothing());
}

TEST_CASE("a command that hangs holds its queue alone, until it is let go") {
  Rig rig;
  auto hanging = rig.queue(), other = rig.queue();
  const CommandList one = filling(rig.vector(4), 1), two = filling(rig.vector(4), 1);
  rig.device->faults().set(Fault::kHang, true);
  REQUIRE(hanging->submit(one, 1, NoLocksHeld{}).ok());
  while (rig.device->faults().is_on(Fault::kHang)) give_way();
  REQUIRE(other->submit(two, 1, NoLocksHeld{}).ok());
  CHECK(wait(*other, 1).ok());
  CHECK(hanging->timeline()->wait(1, Deadline::in(std::chrono::milliseconds(5))).code() == Code::deadline);
  rig.device->deliver_lost();
  CHECK(wait(*hanging, 1).ok());
  CHECK(rig.found_nothing());
}

TEST_CASE("a completion that is told twice is one, and a slow compilation takes its second") {
  Rig rig;
  auto queue = rig.queue();
  const CommandList list = filling(rig.vector(4), 1);
  rig.device->faults().set(Fault::kSecondCompletion, true);
  REQUIRE(queue->submit(list, 1, NoLocksHeld{}).ok());
  REQUIRE(wait(*queue, 1).ok());
  CHECK(queue->timeline()->reached() == 1);
  const auto module = load_two_products(*rig.device);
  const TimePoint begin = rig.device->clock().now();
  rig.device->faults().set(Fault::kSlowCompile, true);
  CHECK(module->compile(std::vector<Extents>{{3, 8}}, NoLocksHeld{}).ok());
  CHECK(rig.device->clock().now() - begin >= kSlow);
}

TEST_CASE("a device that is lost in a call says so there, and fails its queues") {
  Rig rig;
  auto queue = rig.queue();
  const CommandList list = filling(rig.vector(4), 1);
  rig.device->hold();
  REQUIRE(queue->submit(list, 1, NoLocksHeld{}).ok());
  rig.device->faults().set(Fault::kLossInCall, true);
  CHECK(rig.device->make_queue(NoLocksHeld{}).status().code() == Code::device_lost);
  CHECK(rig.device->lost().code() == Code::device_lost);
  CHECK(wait(*queue, 1).code() == Code::device_lost);
  CHECK(queue->submit(list, 2, NoLocksHeld{}).code() == Code::device_lost);
}

// The thread sanitizer judges what the maker looks at beside the device's end.
TEST_CASE("a device that is lost beside the maker of a queue fails that queue once") {
  Rig rig;
  std::unique_ptr<device::Queue> queue;
  Atomic<bool> made{false};
  Thread maker("maker", [&] {
    queue = rig.queue();
    made.store_relaxed(true);  // which orders nothing
  });
  while (!made.load_relaxed()) give_way();
  rig.device->faults().set(Fault::kLossInCall, true);
  CHECK(rig.device->make_queue(NoLocksHeld{}).status().code() == Code::device_lost);
  while (rig.device->stats().failures == 0) give_way();
  maker.join();
  CHECK(wait(*queue, 1).code() == Code::device_lost);
  CHECK(rig.device->stats().failures == 1);
}

TEST_CASE("memory that users have is counted until they give it back") {
  Rig rig;
  const uint64_t before = rig.device->stats().bytes;
  {
    const View view = rig.vector(16);
    CHECK(rig.device->stats().bytes == before + 64);
  }
  CHECK(rig.device->stats().bytes == before);
}

TEST_CASE("a compilation fails once") {
  Rig rig;
  const auto module = load_two_products(*rig.device);
  rig.device->faults().set(Fault::kCompile, true);
  const std::vector<Extents> shape = {{3, 8}};
  CHECK(module->compile(shape, NoLocksHeld{}).status().code() == Code::unavailable);
  CHECK(module->compile(shape, NoLocksHeld{}).ok());
}

TEST_CASE("a queue that fails takes no other with it, but for those that wait for it") {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    Rig rig(with_seed(seed));
    auto failing = rig.queue(), waiting = rig.queue(), apart = rig.queue();
    const CommandList list = filling(rig.vector(4), 1), other = filling(rig.vector(4), 1);
    CommandList waits;
    waits.wait({failing->timeline(), 2});
    rig.device->faults().arm(Fault::kQueueFailure, 2);
    REQUIRE(failing->submit(list, 1, NoLocksHeld{}).ok());
    REQUIRE(wait(*failing, 1).ok());
    rig.device->hold();
    REQUIRE(failing->submit(list, 2, NoLocksHeld{}).ok());
    REQUIRE(waiting->submit(waits, 1, NoLocksHeld{}).ok());
    rig.device->release();
    CHECK(wait(*failing, 2).code() == Code::device_lost);
    CHECK(wait(*waiting, 1).code() == Code::device_lost);
    REQUIRE(apart->submit(other, 1, NoLocksHeld{}).ok());
    CHECK(wait(*apart, 1).ok());
    CommandList late;
    late.wait({failing->timeline(), 2});
    CHECK(apart->submit(late, 2, NoLocksHeld{}).code() == Code::unavailable);
    CHECK(wait(*apart, 2).ok());
    CHECK(rig.device->lost().ok());
    CHECK(rig.found_nothing());
  }
}

TEST_CASE("a submission to a queue that has failed returns when what it waits for is over") {
  for (const bool is_lost : {false, true}) {
    CAPTURE(is_lost);
    Rig rig;
    auto failing = rig.queue(), slow = rig.queue();
    const auto gate = std::make_shared<SimEvent>();
    const View view = rig.vector(4);
    CommandList first = filling(rig.vector(4), 1), slowly = filling(view, 2), refused;
    slowly.wait_first({*rig.device->import_event(gate->foreign(), NoLocksHeld{})});
    refused.wait({slow->timeline(), 1});
    refused.copy(view, rig.vector(4));
    rig.device->faults().arm(Fault::kQueueFailure, 1);
    REQUIRE(failing->submit(first, 1, NoLocksHeld{}).ok());
    REQUIRE(wait(*failing, 1).code() == Code::device_lost);
    REQUIRE(slow->submit(slowly, 1, NoLocksHeld{}).ok());
    bool was_over = false;
    Atomic<bool> begun{false}, returned{false};
    const Thread submits("submits", [&] {
      begun.store_relaxed(true);  // which orders nothing
      CHECK(failing->submit(refused, 2, NoLocksHeld{}).code() == Code::device_lost);
      const device::Timeline& other = *slow->timeline();
      was_over = other.done(1) || other.failed();
      returned.store_release(true);  // read by the test
    });
    while (!begun.load_relaxed()) give_way();
    const Deadline moment = Deadline::in(std::chrono::milliseconds(5));
    while (!moment.expired() && !returned.load_acquire()) give_way();
    if (is_lost) {  // with which all ends
      rig.device->faults().set(Fault::kLossInCall, true);
      CHECK_FALSE(rig.device->make_queue(NoLocksHeld{}).ok());
    } else {
      gate->signal();
    }
    while (!returned.load_acquire()) give_way();
    CHECK(was_over);
    gate->signal();
    CHECK(rig.found_nothing());
  }
}

TEST_CASE("an event whose queue fails, or dies before it, is signalled all the same") {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    Rig rig(with_seed(seed));
    auto failing = rig.queue(), dying = rig.queue();
    const auto of_failed = std::make_shared<SimEvent>(), of_dead = std::make_shared<SimEvent>();
    CommandList first = filling(rig.vector(4), 1), second = filling(rig.vector(4), 1);
    first.signal(of_failed->foreign());
    second.signal(of_dead->foreign());
    rig.device->faults().arm(Fault::kQueueFailure, 1);
    REQUIRE(failing->submit(first, 1, NoLocksHeld{}).ok());
    CHECK(wait(*failing, 1).code() == Code::device_lost);
    while (!of_failed->reached()) give_way();  // after the timeline, by the device's thread
    rig.device->hold();
    REQUIRE(dying->submit(second, 1, NoLocksHeld{}).ok());
    CHECK_FALSE(of_dead->reached());
    dying.reset();
    CHECK(of_dead->reached());
    rig.device->release();
    CHECK(rig.found_nothing());
  }
}

TEST_CASE("a device that is lost fails all queues and makes no more") {
  Rig rig;
  auto first = rig.queue(), second = rig.queue();
  const CommandList list = filling(rig.vector(4), 1);
  rig.device->faults().set(Fault::kDeviceLoss, true);
  REQUIRE(first->submit(list, 1, NoLocksHeld{}).ok());
  CHECK(wait(*first, 1).code() == Code::device_lost);
  CHECK(wait(*second, 1).code() == Code::device_lost);
  CHECK(rig.device->lost().code() == Code::device_lost);
  CHECK(rig.device->make_queue(NoLocksHeld{}).status().code() == Code::device_lost);
  CHECK(rig.found_nothing());
}

TEST_CASE("a completion that is lost ends waits at their deadline only, until it is delivered") {
  Rig rig;
  auto queue = rig.queue();
  rig.device->faults().set(Fault::kLostCompletion, true);
  const CommandList list = filling(rig.vector(4), 1);
  REQUIRE(queue->submit(list, 1, NoLocksHeld{}).ok());
  CHECK(queue->timeline()->wait(1, Deadline::in(std::chrono::milliseconds(5))).code() == Code::deadline);
  REQUIRE(queue->submit(list, 2, NoLocksHeld{}).ok());
  CHECK_FALSE(queue->timeline()->done(1));
  rig.device->deliver_lost();
  CHECK(wait(*queue, 2).ok());
}

TEST_CASE("a late completion is told when all else is over") {
  Rig rig;
  auto first = rig.queue(), second = rig.queue();
  const CommandList list = filling(rig.vector(4), 1), other = filling(rig.vector(4), 1);
  rig.device->faults().set(Fault::kLateCompletion, true);
  rig.device->hold();
  REQUIRE(first->submit(list, 1, NoLocksHeld{}).ok());
  REQUIRE(second->submit(other, 1, NoLocksHeld{}).ok());
  const auto one = first->timeline()->stamp(1, rig.device->clock()),
             two = second->timeline()->stamp(1, rig.device->clock());
  rig.device->release();
  REQUIRE(wait(*first, 1).ok());
  REQUIRE(wait(*second, 1).ok());
  const Duration between = std::chrono::abs(one->when() - two->when());
  CHECK(between > std::chrono::milliseconds(900));
}

TEST_CASE("what only the data shows is recorded for its row before the submission is over") {
  ir::Builder b;
  ir::Tensor table = ir::Tensor::zeros(DType::kF32, {5, 2});
  for (int64_t i = 0; i < 10; ++i) table.set(i, static_cast<double>(i));
  const ir::ValueId indices = b.input("indices", {DType::kI64, {ir::Dim::symbol("batch")}});
  b.output(*b.node("Gather", {b.constant(table), indices}, {}, "lookup"));
  const ir::Graph graph = *b.take();
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Rig rig(with_seed(seed));
    const auto module = *rig.device->load(graph, {}, device::plain_source(*rig.device), NoLocksHeld{});
    const auto program = *module->compile(std::vector<Extents>{{3}}, NoLocksHeld{});
    auto queue = rig.queue();
    const View staged = rig.vector(3, MemoryKind::staging, DType::kI64),
               in = rig.vector(3, MemoryKind::device, DType::kI64);
    auto* const values = reinterpret_cast<int64_t*>(staged.host());
    values[0] = 4, values[1] = 77, values[2] = 1;
    const View out = View::contiguous(rig.vector(6).buffer, DType::kF32, {3, 2});
    const auto faults = std::make_shared<device::RowFaults>(3);
    CommandList list;
    list.copy(staged, in);
    list.run(program, *device::arena_for(*rig.device, *program), {in}, {out}, faults);
    REQUIRE(queue->submit(list, 1, NoLocksHeld{}).ok());
    REQUIRE(wait(*queue, 1).ok());
    CHECK(faults->count() == 1);
    CHECK(faults->of(1).message().find("lookup") != std::string::npos);
    CHECK(faults->whole().ok());

    const auto whole = std::make_shared<device::RowFaults>(0), next = std::make_shared<device::RowFaults>(0);
    CommandList wrong, reads;
    wrong.run(program, *device::arena_for(*rig.device, *program), {in}, {out}, whole);
    reads.run(program, *device::arena_for(*rig.device, *program), {in}, {out}, next);
    std::get<device::Run>(*reads.begin()).sources.push_back(whole);
    REQUIRE(queue->submit(wrong, 2, NoLocksHeld{}).ok());
    REQUIRE(queue->submit(reads, 3, NoLocksHeld{}).ok());
    REQUIRE(wait(*queue, 3).ok());
    CHECK(whole->whole().code() == Code::invalid);
    CHECK(next->whole().code() == Code::invalid);
    CHECK(rig.found_nothing());
  }
}

TEST_CASE("equal seeds take equal virtual time, others do not, and queues run side by side") {
  const auto play = [](uint64_t seed, uint64_t& overlaps) {
    Rig rig(with_seed(seed));
    std::vector<std::unique_ptr<device::Queue>> queues;
    std::vector<CommandList> lists;
    rig.device->hold();
    for (int q = 0; q < 4; ++q) {
      queues.push_back(rig.queue());
      lists.push_back(filling(rig.vector(4), 1));
    }
    for (uint64_t value = 1; value <= 10; ++value) {
      for (size_t q = 0; q < 4; ++q) REQUIRE(queues[q]->submit(lists[q], value, NoLocksHeld{}).ok());
    }
    rig.device->release();
    for (auto& queue : queues) REQUIRE(wait(*queue, 10).ok());
    overlaps = rig.device->stats().overlaps;
    CHECK(rig.found_nothing());
    return rig.device->clock().now();
  };
  uint64_t first = 0, again = 0, other = 0;
  const TimePoint time = play(5, first);
  CHECK(play(5, again) == time);
  CHECK(again == first);
  CHECK(play(6, other) != time);
  CHECK(first > 5);
}

}  // namespace heddle::sim::test
