#include "api/sim_hooks.h"

#if defined(HEDDLE_SIM)

#include <string_view>

#include "api/internals.h"
#include "api/process_devices.h"
#include "drivers/sim/sim_device.h"

namespace heddle::sim_hooks {
namespace {

constinit Atomic<void (*)()> at_call{nullptr};  // a test stores, a call acquires

std::string_view next_word(std::string_view& words) {
  const size_t end = words.find(' ');
  const std::string_view word = words.substr(0, end);
  words.remove_prefix(end == std::string_view::npos ? words.size() : end + 1);
  return word;
}

struct Found {
  Device device;
  sim::SimDevice* driver;
};
std::optional<Found> newest() {
  std::optional<Found> found;
  for (const Device& device : process_devices::living()) {
    const device::Device& driver = Internals::runtime(device).device();
    // A runtime shows its driver as what nobody changes; a test does.
    if (const auto* const simulated = dynamic_cast<const sim::SimDevice*>(&driver))
      found = Found{device, const_cast<sim::SimDevice*>(simulated)};
  }
  return found;
}

int64_t plan(sim::SimDevice& driver, std::string_view asked, std::string_view word, std::string_view nth) {
  const Result<sim::PlannedFault> planned = sim::parse_fault(word, nth.empty() ? "1" : nth);
  if (!planned.ok()) return -1;
  if (asked == "passed") return driver.faults().passed(planned->fault);
  if (asked == "armed") return driver.faults().is_on(planned->fault) ? 1 : 0;
  planned->arm(driver.faults());
  return 0;
}

void count_all(sim::SimDevice& driver) {
  for (const sim::FaultLine& line : sim::kFaultLines) driver.faults().count(line.fault);
}

int64_t reset(sim::SimDevice& driver) {
  driver.faults().reset();
  driver.deliver_lost();
  return 0;
}

}  // namespace

int64_t ask(const char* asked) {
  std::string_view words = asked;
  const std::string_view word = next_word(words);
  const std::optional<Found> found = newest();
  if (!found) return -1;
  sim::SimDevice& driver = *found->driver;
  if (word == "fault" || word == "passed" || word == "armed") {
    const std::string_view fault = next_word(words);
    return plan(driver, word, fault, words);
  }
  if (word == "count") return count_all(driver), 0;
  if (word == "reset") return reset(driver);
  if (word == "faults") return static_cast<int64_t>(sim::Fault::kCount);
  if (word == "idle") return driver.await_idle(), 0;
  if (word == "lost") return driver.lost().ok() ? 0 : 1;
  if (word == "bytes") return static_cast<int64_t>(driver.stats().bytes);
  if (word == "violations") return static_cast<int64_t>(driver.violations().size());
  if (word == "staging")
    return static_cast<int64_t>(Internals::runtime(found->device).stats().memory.staging.allocated);
  return -1;
}

void at_each_call(void (*called)()) { at_call.store_release(called); }

void inside_call() {
  if (auto* const called = at_call.load_acquire()) called();
}

}  // namespace heddle::sim_hooks

#endif
