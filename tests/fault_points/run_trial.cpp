#include "trial_fixture.h"

namespace heddle::simulated {
namespace {

// By the fault's own error; what was asked of a failed device or stream later says device_lost; and who was
// closed beside a call, unavailable.
bool may_fail_with(const Trial& trial, ErrorCode code) {
  if (trial.operation.closes != Closes::nothing && code == ErrorCode::unavailable) return true;
  if (!trial.fault) return false;
  if (trial.hangs() && trial.operation.answers_for_hung && code == ErrorCode::unavailable) return true;
  const Code error = sim::line_of(trial.fault->fault).error;
  return error != Code::ok && static_cast<Code>(code) == error;
}

struct Level {
  uint64_t allocated, staging, slots, driver;
  bool operator==(const Level&) const = default;
};
using Levels = std::vector<Level>;  // by device
std::string to_string(const Levels& levels) {
  std::string all;
  for (const Level& level : levels) {
    all += text(all.empty() ? "" : "; ", level.allocated, " bytes of the device, ", level.staging,
                " of staging, ", level.slots, " of slots, ", level.driver, " from the driver");
  }
  return all;
}

// Of memory that the driver refuses once, while some can be given back or nothing else is wrong.
bool is_asked_again(const std::optional<sim::PlannedFault>& fault) {
  using enum sim::Fault;
  return fault && !fault->lasting &&
         (fault->fault == kAllocation || fault->fault == kDeviceMemory || fault->fault == kStagingMemory);
}

// Of memory in use, once nothing is under way and nothing is kept.
Levels levels_of(const ApiWorld& world) {
  Levels levels;
  for (size_t i = 0; i < world.devices.size(); ++i) {
    const Device& device = world.devices[i];
    static_cast<void>(error_of([&] { device.synchronize(); }));  // goes on past a stream that failed
    world.drivers[i]->await_idle();
    static_cast<void>(error_of([&] { device.empty_cache(); }));  // a closed one has none
    const DeviceStats stats = device.stats();
    levels.push_back({stats.memory.allocated, Internals::runtime(device).stats().memory.staging.allocated,
                      stats.memory.slots, world.drivers[i]->stats().bytes});
  }
  return levels;
}

bool calls_rightly(const ApiWorld& world, const Model& model, const std::optional<Stream>& stream = {}) {
  const Rows x(3, 0.7);
  const std::vector<int64_t> rows = {3, 0};
  CallOptions options;
  options.timeout = kTimeout;
  options.stream = stream;
  return &model == &world.products ? gives(x, model({tensor_of(x)}, options).at(0))
                                   : looked_up(rows, model({indices(rows)}, options).at(0));
}

// That of a device among several; a model on one alone is called as most are.
std::optional<Stream> on_another(const ApiWorld& world, const Device& device) {
  return world.devices.size() > 1 ? std::optional<Stream>(Stream(device)) : std::nullopt;
}

// Whether a call that ends so says what has become of its device and model.
bool is_told_on(const Trial& trial, const Model& model, size_t device, std::optional<ErrorCode> error) {
  const bool closed = (trial.operation.closes == Closes::device && device == 0) ||
                      (trial.operation.closes == Closes::model && &model == &trial.world.products);
  if (closed) return error == ErrorCode::unavailable;
  if (!trial.world.drivers[device]->lost().ok()) return error == ErrorCode::device_lost;
  return !error;
}

// The same, where the model chooses the device: one that works, if there is one.
bool is_told(const Trial& trial, const Model& model, std::optional<ErrorCode> error) {
  bool some_works = false, some_says_so = false;
  for (size_t i = 0; i < trial.world.devices.size(); ++i) {
    some_works = some_works || is_told_on(trial, model, i, std::nullopt);
    some_says_so = some_says_so || is_told_on(trial, model, i, error);
  }
  return some_works ? !error : some_says_so;
}

// Until what streams ran with has gone: nobody who saw a result has waited for that.
void let_streams_end(Simulation& simulation, const ApiWorld& world) {
  if (world.devices.size() > 1) simulation.pause(seconds(1));
}

// Before: each model runs on each of its devices.
void expect_whole(Simulation& simulation, const ApiWorld& world) {
  for (const Model* model : {&world.products, &world.lookup}) {
    for (const Device& device : world.devices)
      simulation.expect(calls_rightly(world, *model, on_another(world, device)), "the world is whole before");
  }
  let_streams_end(simulation, world);
}

void expect_usable(Trial& trial) {
  const ApiWorld& world = trial.world;
  for (const Model* model : {&world.products, &world.lookup}) {
    for (int i = 0; i < 2; ++i) {
      bool right = false;
      const auto error = error_of([&] { right = calls_rightly(world, *model); });
      trial.simulation.expect(
          is_told(trial, *model, error),
          text("afterwards a call is right, or says that the device is lost: ", error ? name(*error) : "ok"));
      trial.simulation.expect(right || error, "afterwards a call has its values");
    }
    for (size_t i = 0; i < world.devices.size() && world.devices.size() > 1; ++i) {
      bool right = false;
      const auto error = error_of([&] { right = calls_rightly(world, *model, Stream(world.devices[i])); });
      // A lost device has no stream for a closed model, either.
      const bool no_stream = error == ErrorCode::device_lost && !world.drivers[i]->lost().ok();
      trial.simulation.expect(
          no_stream || is_told_on(trial, *model, i, error),
          text("afterwards device ", i, " works, or says that it is lost: ", error ? name(*error) : "ok"));
      trial.simulation.expect(right || error, "afterwards a call on a stream has its values");
    }
  }
  let_streams_end(trial.simulation, world);
}

// A call of each model, which may share a batch with the operation's.
void call_beside(Trial& trial) {
  const Rows x(1, 0.4);
  trial.step("a call beside it",
             [&] { return gives(x, trial.world.products({tensor_of(x)}, trial.options()).at(0)); });
  const std::vector<int64_t> rows = {4};
  trial.step("a look-up beside it",
             [&] { return looked_up(rows, trial.world.lookup({indices(rows)}, trial.options()).at(0)); });
}

// Lets go what hangs when nothing else will.
class Rescue {
 public:
  explicit Rescue(Trial& trial) : trial_(trial), thread_("rescue", [this] { watch(); }) {}
  ~Rescue() {
    ended_.lock()->is = true;
    ended_.notify_all();
    thread_.join();
    trial_.simulation.expect(!came_.load_acquire() || trial_.hangs(), "nothing waits for ever");
  }
  Rescue(const Rescue&) = delete;
  Rescue& operator=(const Rescue&) = delete;

 private:
  struct Ended {
    bool is = false;
  };
  void watch() {
    auto ended = ended_.lock();
    if (ended.wait_until(Deadline::in(kRescue), [&] { return ended->is; })) return;
    came_.store_release(true);
    trial_.world.drivers[trial_.faulty]->deliver_lost();
  }
  Trial& trial_;
  Guarded<Ended, Rank::kPool> ended_{Ended{}};
  Atomic<bool> came_{false};
  Thread thread_;
};

// One store each, whether it comes or is counted: up to its point a trial takes the steps of the one without.
void plan(sim::SimDevice& driver, const std::optional<sim::PlannedFault>& fault) {
  for (size_t i = 0; i < kFaults; ++i) {
    const auto each = static_cast<sim::Fault>(i);
    if (fault && fault->fault == each) {
      fault->arm(driver.faults());
    } else {
      driver.faults().count(each);
    }
  }
}

}  // namespace

bool Trial::note(const char* name, std::optional<ErrorCode> error, bool is_right) {
  answered_.add_relaxed(1);
  if (!error) {
    simulation.expect(is_right, text(name, " gives the right values"));
    return true;
  }
  failed_.add_relaxed(1);
  simulation.expect(may_fail_with(*this, *error), text(name, " ended with ", heddle::name(*error)));
  return false;
}

Points run_trial(Simulation& simulation, const Operation& operation,
                 const std::optional<sim::PlannedFault>& fault, size_t faulty) {
  std::vector<Ref<sim::SimDevice>> drivers;
  Points points{};
  {
    const ApiWorld world(simulation, {}, operation.devices);
    drivers = world.drivers;
    const Ref<sim::SimDevice>& driver = drivers[faulty];
    Trial trial(simulation, world, operation, fault, faulty);
    expect_whole(simulation, world);
    const Levels before = levels_of(world);
    plan(*driver, fault);
    {
      const Rescue rescue(trial);
      run_together(2, [&](int thread) { thread == 0 ? operation.run(trial) : call_beside(trial); });
    }
    for (size_t i = 0; i < kFaults; ++i) points[i] = driver->faults().passed(static_cast<sim::Fault>(i));
    if (fault && !fault->lasting) simulation.expect(!driver->faults().is_on(fault->fault), "the fault came");
    driver->faults().reset();
    driver->deliver_lost();
    simulation.expect(trial.asked() == trial.answered(), "each step has one answer");
    simulation.expect(fault || operation.closes != Closes::nothing || trial.failed() == 0,
                      "without a fault nothing fails");
    simulation.pause(seconds(1));  // until all is told, and nobody is expected back
    simulation.expect(!is_asked_again(fault) || operation.closes != Closes::nothing || trial.failed() == 0,
                      "what was refused once is asked for again");
    // Already now, though callers may be expected back.
    const Levels idle = levels_of(world);
    simulation.expect(operation.closes != Closes::nothing || idle == before,
                      text("memory: before ", to_string(before), ", idle ", to_string(idle)));
    expect_usable(trial);
    const Levels after = levels_of(world);
    simulation.expect(operation.closes != Closes::nothing || after == before,
                      text("memory: before ", to_string(before), ", after ", to_string(after)));
    world.expect_no_violation(simulation);
  }
  for (const auto& driver : drivers) {
    simulation.expect(driver->stats().bytes == 0, "the driver has all its memory back");
    for (const sim::Found& each : driver->violations()) simulation.fail(to_string(each));
  }
  return points;
}

}  // namespace heddle::simulated
