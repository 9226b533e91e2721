// What a stream holds back, under the orders that it states, and while a wait for its Turn is ended.
#include <doctest/doctest.h>

#include <optional>
#include <utility>

#include "base/schedules_fixture.h"
#include "base/thread.h"
#include "runtime/memory/allocator.h"
#include "runtime/streams/roster.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {

namespace {

using device::View;
using heddle::test::at_once;
using heddle::test::explore;
using heddle::test::holds_for_seeds;

// A stream that has been given nothing, and runs for it.
struct Lender {
  Lender()
      : device(std::make_shared<test::TestDevice>(
            test::TestOptions{.asynchronous = true, .runs_together = 4, .shows_native = true})),
        allocator(*Allocator::make(device, {})),
        roster(device, Clock::real()),
        stream(*roster.make(1)),
        module(*device->load(test::graph_named("copy"), {}, allocator, {})) {}

  device::CommandList run() {
    const ir::Extents extents{1, 4};
    const auto tensor = [&] { return View::contiguous(*allocator->allocate(16), ir::DType::kF32, extents); };
    device::CommandList list;
    list.run(*module->compile({&extents, 1}, {}), *allocator->allocate(64), {tensor()}, {tensor()},
             std::make_shared<device::RowFaults>(0));
    return list;
  }
  static bool submit(Turn turn, device::CommandList list) { return submit_with(turn, std::move(list)); }
  static bool submit_with(Turn& turn, device::CommandList list) {
    Submission extras;
    extras.joins = true;
    return turn.submit(std::move(list), std::move(extras)).ok();
  }

  Ref<test::TestDevice> device;
  Ref<Allocator> allocator;
  Roster roster;
  Ref<Stream> stream;
  Ref<const device::Module> module;
};

Atomic<int> asked{0};  // how often a wait asked whether it is to end
bool end_each_wait() {
  asked.add_relaxed(1);
  return true;
}

}  // namespace

TEST_CASE("weak orders: who finds the value of a run that is held back has it sent") {
  explore({"held_back_weak", 2, 1, 2, true, 2}, [](Simulation& sim, int threads) {
    Lender f;
    device::CommandList list = f.run();
    uint64_t wanted = 0;
    at_once(sim, threads, [&](int i) {
      if (i == 1) {
        sim.expect(Lender::submit(*f.stream->turn(), std::move(list)), "held back");
        return;
      }
      wanted = f.stream->last_submitted();
      f.stream->timeline()->want(wanted);
    });
    sim.expect(f.stream->timeline()->holds_back() == (wanted == 0), "what is wanted is sent, and no other");
    sim.expect(f.stream->synchronize(Deadline::never()).ok(), "it is over");
  });
}

TEST_CASE("simulated: who asks for a native stream waits for the Turn, also when asked to end the wait") {
  holds_for_seeds(50, [](Simulation& sim) {
    Lender f;
    asked.store_relaxed(0);
    ask_while_waiting(end_each_wait);
    std::optional<Turn> turn(*f.stream->turn());
    Thread other("other", [&] { sim.expect(f.stream->native() != nullptr, "it has one"); });
    test::wait_until([&] { return asked.load_relaxed() >= 2; });
    sim.expect(Lender::submit_with(*turn, f.run()) && f.stream->timeline()->holds_back(), "its Turn");
    turn.reset();
    other.join();
    ask_while_waiting(nullptr);
    sim.expect(!f.stream->timeline()->holds_back(), "sent before the native stream is known");
    sim.expect(Lender::submit(*f.stream->turn(), f.run()) && !f.stream->timeline()->holds_back(),
               "nothing is held back again");
    sim.expect(f.stream->synchronize(Deadline::never()).ok(), "it is over");
  });
}

}  // namespace heddle::runtime
