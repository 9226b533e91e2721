// trial_fixture.h: one public operation, beside a thread that calls, on devices of which one has at most one
// fault.
//
//   What       run_trial() makes a world, warms it up, empties its cache, plans the fault, and lets an
//              operation and its neighbour run. Then it demands that each step was answered once, rightly or
//              with the fault's error; that the device works again or says that it is lost; that the others
//              work; that no memory is gone. It returns how often each fault could have come: what an
//              enumeration goes through.
//   Deadlines  Each step that takes one has kTimeout. What waits without one is let go at kRescue, as a
//              person would who resets the device.
//   Threads    Made by a simulation's body.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulated/api_world_fixture.h"

namespace heddle::simulated {

constexpr Duration kTimeout = seconds(20), kRescue = seconds(120);
constexpr size_t kFaults = static_cast<size_t>(sim::Fault::kCount);
using Points = std::array<int64_t, kFaults>;  // how often each fault was asked for

struct Operation;

// How the steps of one run ended.
class Trial {
 public:
  Trial(Simulation& its_simulation, const ApiWorld& its_world, const Operation& its_operation,
        std::optional<sim::PlannedFault> its_fault, size_t its_faulty)
      : simulation(its_simulation),
        world(its_world),
        operation(its_operation),
        fault(its_fault),
        faulty(its_faulty) {}

  // True: it returned, with the right values. `ends` says that the step takes a deadline, and has it.
  template <class Body>
  bool step(const char* name, Body&& right, bool ends = true) {
    asked_.add_relaxed(1);
    const TimePoint begin = Clock::real().now();
    bool is_right = false;
    const auto error = error_of([&] { is_right = right(); });
    const Duration took = Clock::real().now() - begin;
    simulation.expect(!ends || took < kTimeout + seconds(5), text(name, " ends at its deadline"));
    return note(name, error, is_right);
  }
  // What runs on one device alone fails with that device's fault, and with no other's.
  template <class Body>
  bool step_on(size_t which, const char* name, Body&& right, bool ends = true) {
    const bool is_right = step(name, std::forward<Body>(right), ends);
    simulation.expect(is_right || which == faulty, text(name, " does not fail with another device's fault"));
    return is_right;
  }
  // For answers that come later, through `arrivals`.
  void expect_answer() { asked_.add_relaxed(1); }
  bool note(const char* name, std::optional<ErrorCode> error, bool is_right);
  int asked() const { return asked_.load_relaxed(); }
  int answered() const { return answered_.load_relaxed(); }
  int failed() const { return failed_.load_relaxed(); }

  CallOptions options() const {
    CallOptions made;
    made.timeout = kTimeout;
    return made;
  }
  CallOptions on(const Stream& stream) const {
    CallOptions made = options();
    made.stream = stream;
    return made;
  }
  bool hangs() const {
    return fault && (fault->fault == sim::Fault::kHang || fault->fault == sim::Fault::kLostCompletion);
  }

  Simulation& simulation;
  const ApiWorld& world;
  const Operation& operation;
  const std::optional<sim::PlannedFault> fault;
  const size_t faulty;  // of the world's devices

 private:
  Atomic<int> asked_{0}, answered_{0}, failed_{0};
};

enum class Closes : uint8_t { nothing, model, device };  // the first device

struct Operation {
  const char* name;
  void (*run)(Trial& trial);
  Closes closes = Closes::nothing;
  bool answers_for_hung = false;  // with unavailable, before their deadlines
  size_t devices = 1;             // that the models are on
};
std::span<const Operation> operations();          // all of them
std::span<const Operation> replica_operations();  // of models on two devices
const Operation& operation_named(std::string_view name);

// Operations of models on any number of devices.
void compile(Trial& trial);
void together(Trial& trial);

// In a simulation: with the fault on that device, or with none.
Points run_trial(Simulation& simulation, const Operation& operation,
                 const std::optional<sim::PlannedFault>& fault, size_t faulty = 0);

inline SimulationOptions of_trials() { return of_whole_calls(); }

}  // namespace heddle::simulated
