// The simulated device inside a simulation: its thread, its choices and its time are the simulation's.
#include <set>
#include <string>

#include "world_fixture.h"

namespace heddle::simulated {
namespace {

constexpr int kCallers = 3, kCallsEach = 2;

// Calls of several threads; what the device did, as text.
std::string play(uint64_t seed, SimulationReport& report) {
  std::string history;
  report = simulate(
      seed,
      [&](Simulation& simulation) {
        sim::SimOptions options = some_device(simulation);
        options.keeps_history = true;
        const World world(options);
        Atomic<int> right{0};
        run_together(kCallers, [&](int caller) {
          for (int i = 0; i < kCallsEach; ++i) {
            Rows x(1 + i, caller + 0.1 * i);
            const View in = x.view();
            runtime::Call call;
            call.inputs = {&in, 1};
            const auto result = world.runtime->run(*world.model, call);
            expect_ok(simulation, result.status());
            right.add_relaxed(x.gives(floats(result->front())) ? 1 : 0);
          }
        });
        simulation.expect(right.load_relaxed() == kCallers * kCallsEach,
                          "each call has the reference's values");
        world.expect_no_violation(simulation);
        for (const sim::Happened& each : world.device->history()) {
          history += text(each.at, ' ', sim::name(each.what), ' ', each.queue, ' ', each.value, ' ',
                          each.detail, '\n');
        }
      },
      of_whole_calls());
  return history;
}

TEST_CASE("simulated: equal seeds make equal schedules of the threads and of the device") {
  std::set<std::string> histories;
  constexpr uint64_t kSeeds = 100;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SimulationReport first, second;
    const std::string history = play(seed, first);
    REQUIRE_MESSAGE(first.ok(), first.failure);
    CHECK(play(seed, second) == history);
    CHECK(first.fingerprint == second.fingerprint);
    CHECK(first.steps == second.steps);
    CHECK(first.took == second.took);
    CHECK(history.find("told") != std::string::npos);
    histories.insert(history);
  }
  CHECK(histories.size() == kSeeds);
}

// A queue of the device without a runtime, and a buffer.
struct Bare {
  explicit Bare(const sim::SimOptions& options) : device(make_device(options)) {}
  std::unique_ptr<device::Queue> queue() const { return *device->make_queue(NoLocksHeld{}); }
  View vector(int64_t elements) const {
    auto memory =
        device->allocate(static_cast<uint64_t>(4 * elements), device::MemoryKind::device, NoLocksHeld{});
    auto buffer =
        std::make_shared<device::Buffer>(std::move(*memory), static_cast<uint64_t>(4 * elements), nullptr);
    return View::contiguous(std::move(buffer), DType::kF32, {elements});
  }
  Ref<sim::SimDevice> device;
};

device::CommandList filling(const View& view, double value) {
  device::CommandList list;
  list.fill(view, value);
  return list;
}

TEST_CASE(
    "simulated: a completion comes at its time, before which a deadline passes, and the device's clock is "
    "the simulation's") {
  holds_for_seeds(200, [](Simulation& simulation) {
    const TimePoint begin = Clock::real().now();
    sim::SimOptions options = some_device(simulation);
    options.keeps_history = true;
    const Bare bare(options);
    simulation.expect(&bare.device->clock() == &Clock::real(), "there is one time");
    bare.device->faults().arm(sim::Fault::kLateCompletion, 1);  // by a second
    const auto queue = bare.queue();
    const View view = bare.vector(8);
    const device::CommandList list = filling(view, 1);
    expect_ok(simulation, queue->submit(list, 1, NoLocksHeld{}));
    const Status early = queue->timeline()->wait(1, Deadline::in(milliseconds(500)));
    simulation.expect(early.code() == Code::deadline, "the deadline comes first");
    const TimePoint then = Clock::real().now();
    simulation.expect(then - begin >= milliseconds(500) && then - begin < seconds(1), "at its time");
    expect_ok(simulation, queue->timeline()->wait(1, Deadline::never()));
    simulation.expect(Clock::real().now() - begin >= seconds(1), "and the completion at its own");
    uint64_t last = 0;
    for (const sim::Happened& each : bare.device->history()) {
      simulation.expect(each.at >= last, "events are in the order of their times");
      last = each.at;
    }
    simulation.expect(Duration(last) >= seconds(1), "it was told late");
    simulation.expect(begin + Duration(last) <= Clock::real().now(), "nothing happened in the future");
  });
}

TEST_CASE("simulated: a missing dependency between two threads' queues is found under every schedule") {
  holds_for_seeds(150, [](Simulation& simulation) {
    const Bare bare(some_device(simulation));
    const View view = bare.vector(64);
    const device::CommandList lists[] = {filling(view, 1), filling(view, 2)};
    const std::unique_ptr<device::Queue> queues[] = {bare.queue(), bare.queue()};
    Atomic<int> told{0};
    run_together(2, [&](int thread) {
      const Status given = queues[thread]->submit(lists[thread], 1, NoLocksHeld{});
      if (!given.ok()) return;  // the other one was found first
      if (queues[thread]->timeline()->wait(1, Deadline::never()).code() != Code::internal)
        told.add_relaxed(1);
    });
    const auto found = bare.device->violations();
    // One that was told before the other was submitted is ordered by the host.
    simulation.expect(found.size() == (told.load_relaxed() == 2 ? 0 : 1), "it is found, once");
    for (const sim::Found& each : found)
      simulation.expect(each.what == sim::Violation::kMissingDependency, sim::to_string(each));
  });
}

}  // namespace
}  // namespace heddle::simulated
