#include "state.h"

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
  std::array<std::atomic<bool>, static_cast<size_t>(Fault::kCount)> faults{};
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Count::kCount)> counts{};
  std::atomic<int64_t> live{0};
  std::mutex lock;
  std::condition_variable unstuck;
  uint64_t rescues = 0;  // calls of end_stuck_kernels
  Memory memory;
  std::map<std::string, Kernel, std::less<>> kernels;
};
// Never destroyed: threads of the double outlive main().
State& state() {
  static State* const made = new State;
  return *made;
}

std::atomic<bool>& flag(Fault fault) { return state().faults[static_cast<size_t>(fault)]; }

}  // namespace

void seed(uint64_t value) {
  state().seed = value;
  state().queues = 0;
}

void reset() {
  State& s = state();
  seed(1);
  end_meetings();
  s.longest_delay_us = kDefaultDelayUs;
  s.pass_time_us = 0;
  for (auto& fault : s.faults) fault = false;
  for (auto& count : s.counts) count = 0;
  const std::lock_guard lock(s.lock);
  s.memory = {};
}

void set(Fault fault, bool on) { flag(fault) = on; }
bool is_on(Fault fault) { return flag(fault); }
bool take(Fault fault) { return flag(fault).exchange(false); }

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

namespace {

uint64_t mix(uint64_t z) {  // splitmix64's
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

// Mixed: if their states lay a step apart, each queue's sequence would be its neighbour's, one decision on.
Schedule::Schedule(uint64_t queue) : state_(mix(state().seed + mix(queue + 1))) {}

// Three of four are not held at all, so that queues drift against each other.
uint32_t Schedule::next_delay_us() {
  const uint64_t chance = mix(state_ += 0x9e3779b97f4a7c15);
  const uint32_t longest = state().longest_delay_us;
  return longest == 0 || chance % 4 ? 0 : static_cast<uint32_t>((chance >> 8) % longest);
}

namespace {

void stand_still_until(std::chrono::steady_clock::time_point end) {
  std::unique_lock lock(state().lock);
  state().unstuck.wait_until(lock, end, [] { return false; });
}

}  // namespace

void Schedule::hold() {
  const uint32_t delay = next_delay_us();
  if (delay > 0) stand_still_until(std::chrono::steady_clock::now() + std::chrono::microseconds(delay));
}

PassTime::PassTime()
    : end_(std::chrono::steady_clock::now() + std::chrono::microseconds(state().pass_time_us)) {}

void PassTime::end_pass() const {
  if (std::chrono::steady_clock::now() < end_) stand_still_until(end_);
}

}  // namespace heddle::metal_double
