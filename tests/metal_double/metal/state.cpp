#include "state.h"

#include "drivers/sim/faults.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

namespace heddle::metal_double {
namespace {

constexpr uint32_t kDefaultDelayUs = 50;

struct State {
  std::atomic<uint64_t> seed{1};
  std::atomic<uint64_t> queues{0};  // made since the seed was set
  std::atomic<uint32_t> longest_delay_us{kDefaultDelayUs};
  std::atomic<uint32_t> pass_time_us{0};
  sim::Faults<Fault> faults;
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Count::kCount)> counts{};
  std::atomic<int64_t> live{0};
  std::mutex lock;
  std::condition_variable unstuck;
  uint64_t rescues = 0;  // calls of end_stuck_kernels
  Memory memory;
  std::map<std::string, Kernel, std::less<>> kernels;
  sim::Retired retired{1};
  std::mutex host_lock;
  Knowledge host;  // what the host has seen completed
};
// Never destroyed: threads of the double outlive main().
State& state() {
  static State* const made = new State;
  return *made;
}

}  // namespace

void seed(uint64_t value) {
  state().seed = value;
  state().queues = 0;
}

void reset() {
  State& s = state();
  seed(1);
  end_meetings();
  reset_field();
  s.longest_delay_us = kDefaultDelayUs;
  s.pass_time_us = 0;
  s.faults.reset();
  for (auto& count : s.counts) count = 0;
  const std::lock_guard lock(s.lock);
  s.memory = {};
}

void set(Fault fault, bool on) { state().faults.set(fault, on); }
bool is_on(Fault fault) { return state().faults.is_on(fault); }
bool take(Fault fault) { return state().faults.take(fault); }

void end_stuck_kernels() {
  {
    const std::lock_guard lock(state().lock);
    ++state().rescues;
  }
  state().unstuck.notify_all();
}
void stuck_kernel() {
  State& s = state();
  std::unique_lock lock(s.lock);
  const uint64_t before = s.rescues;
  s.unstuck.wait(lock, [&] { return s.rescues != before; });
}

void set_memory(Memory memory) {
  const std::lock_guard lock(state().lock);
  state().memory = memory;
}
Memory memory() {
  const std::lock_guard lock(state().lock);
  return state().memory;
}

void register_kernel(std::string_view name, Kernel kernel) {
  const std::lock_guard lock(state().lock);
  state().kernels.insert_or_assign(std::string(name), kernel);
}
Kernel find_kernel(std::string_view name) {
  const std::lock_guard lock(state().lock);
  const auto found = state().kernels.find(name);
  return found == state().kernels.end() ? nullptr : found->second;
}

void add(Count what) { ++state().counts[static_cast<size_t>(what)]; }
uint64_t count(Count what) { return state().counts[static_cast<size_t>(what)]; }
int64_t live_objects() { return state().live; }

Alive::Alive() { ++state().live; }
Alive::~Alive() { --state().live; }

void set_longest_delay_us(uint32_t microseconds) { state().longest_delay_us = microseconds; }
void set_pass_time_us(uint32_t microseconds) { state().pass_time_us = microseconds; }

uint64_t next_queue() { return state().queues++; }

Schedule make_schedule(uint64_t lane) { return {state().seed, lane}; }

uint32_t next_delay_us(Schedule& schedule) {
  return static_cast<uint32_t>(schedule.delay(state().longest_delay_us));
}

void retire(QueueNumber queue) {
  State& s = state();
  const std::lock_guard lock(s.host_lock);
  s.retired.add(queue);
  s.host.forget(s.retired);
}
const sim::Retired& retired() { return state().retired; }

void host_saw(const Knowledge& completed) {
  const std::lock_guard lock(state().host_lock);
  state().host.learn(completed);
}
Knowledge host_knowledge() {
  const std::lock_guard lock(state().host_lock);
  return state().host;
}

namespace {

void stand_still_until(std::chrono::steady_clock::time_point end) {
  std::unique_lock lock(state().lock);
  state().unstuck.wait_until(lock, end, [] { return false; });
}

}  // namespace

void hold(Schedule& schedule) {
  const uint32_t delay = next_delay_us(schedule);
  if (delay > 0) stand_still_until(std::chrono::steady_clock::now() + std::chrono::microseconds(delay));
}

PassTime::PassTime()
    : end_(std::chrono::steady_clock::now() + std::chrono::microseconds(state().pass_time_us)) {}

void PassTime::end_pass() const {
  if (std::chrono::steady_clock::now() < end_) stand_still_until(end_);
}

}  // namespace heddle::metal_double
