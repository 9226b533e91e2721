// work_fixture.h: what a process does with Heddle on the simulated device, and where it can be stopped.
//
//   What       run() opens a device, loads a model, and lets three threads use it, each operation in a step.
//              The thread that enters the driver for the `point`th time waits there until let_go(): meanwhile
//              another one ends the process, or forks.
//   Answers    A step is right, or throws `unavailable` once the process ends, or the error of a fault that
//              the device has; anything else ends the process with kWrong.
//   Threads    run(): one, which makes the others; they end by themselves. await_point() and let_go(): any.
//   Lifetime   Of the process: exit() finds threads within it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "drivers/sim/sim_device.h"
#include "process_fixture.h"

namespace heddle::process_points {

// Of y = 2 x + 1 over f32[batch, 4].
Tensor rows(int64_t count, float first);
bool is_affine(const Tensor& x, const Tensor& y);
Model affine(const Device& device);

// On a device that nobody else has: `inside_call` runs at each call of its driver.
struct Opened {
  Ref<sim::SimDevice> driver;
  Device device;
};
Opened open_sim(const std::string& name, uint64_t seed, std::function<void()> inside_call);

// What a forked child finds of its parent's. Work of each kind has been given to the device.
struct Things {
  Device device;
  Model model;
  Stream stream;
  Tensor result;
  Event event;
  std::unique_ptr<BatchQueue> queue;
  BatchFuture future;
};
std::unique_ptr<Things> make_things(const Device& device, const Model& model);

// A fault that the device has from the `from`th call of its driver on.
struct Trouble {
  sim::PlannedFault fault;
  int64_t from;
  Code error() const { return sim::line_of(fault.fault).error; }  // that users get for it
};
// What comes once only is late, or makes exit() patient: a longer one would be the sum of such.
Trouble trouble_from(const sim::FaultLine& line, int64_t call);

class Work {
 public:
  // `ends`: from its point on the process ends, so that steps may be refused.
  Work(Book& book, int64_t point, bool ends, const std::optional<Trouble>& trouble = {})
      : book_(book), point_(point), ends_(ends), trouble_(trouble) {}
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  void run();
  bool await_point();  // false: run() is over, and it did not come
  void let_go();
  void await_end();  // of run()
  // Null: they are not made yet.
  const Things* things() const { return things_.load_acquire(); }
  bool came() const { return state_.load_acquire() >= kCame; }

 private:
  enum : int { kRuns, kOver, kCame, kGoesOn };
  void enter_call();
  void plan_trouble(int64_t call);
  bool may_fail_with(ErrorCode code) const;
  void finish();
  bool step(const char* name, const std::function<bool()>& right);
  void calls(const Things& all);
  void streams(const Things& all);
  void queues(const Things& all);

  Book& book_;
  const int64_t point_;
  const bool ends_;
  const std::optional<Trouble> trouble_;
  Atomic<sim::SimDevice*> driver_{nullptr};
  Atomic<int> is_planned_{0};  // the trouble is
  Atomic<int> state_{kRuns};   // one of the above, which only grows, but for kOver, which ends it
  Atomic<int> missing_{3};     // threads that are not through
  Atomic<int> ended_{0};       // run() has
  Atomic<const Things*> things_{nullptr};
};

}  // namespace heddle::process_points
