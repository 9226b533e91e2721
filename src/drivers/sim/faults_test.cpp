#include "drivers/sim/faults.h"

#include <doctest/doctest.h>

#include "base/thread.h"

namespace heddle::sim {
namespace {

enum class Trouble : uint8_t { kFlood, kFire, kCount };

}  // namespace

TEST_CASE("a fault that is on hits once and is off then") {
  Faults<Trouble> faults;
  CHECK_FALSE(faults.take(Trouble::kFire));
  faults.set(Trouble::kFire, true);
  CHECK(faults.is_on(Trouble::kFire));
  CHECK_FALSE(faults.is_on(Trouble::kFlood));
  CHECK(faults.take(Trouble::kFire));
  CHECK_FALSE(faults.take(Trouble::kFire));
}

TEST_CASE("an armed fault hits the nth time alone") {
  Faults<Trouble> faults;
  faults.arm(Trouble::kFlood, 3);
  CHECK_FALSE(faults.take(Trouble::kFlood));
  CHECK_FALSE(faults.take(Trouble::kFlood));
  CHECK(faults.take(Trouble::kFlood));
  CHECK_FALSE(faults.take(Trouble::kFlood));
  faults.arm(Trouble::kFlood, 2);
  faults.reset();
  CHECK_FALSE(faults.is_on(Trouble::kFlood));
}

TEST_CASE(
    "a fault that is armed from the nth time on hits that one and each one after it, until it is reset") {
  Faults<Trouble> faults;
  faults.arm_from(Trouble::kFire, 3);
  for (const bool hit : {false, false, true, true, true}) CHECK(faults.take(Trouble::kFire) == hit);
  CHECK(faults.is_on(Trouble::kFire));
  CHECK_FALSE(faults.take(Trouble::kFlood));
  faults.reset();
  CHECK_FALSE(faults.take(Trouble::kFire));
}

TEST_CASE("a fault that is counted hits never, and says how often it could have") {
  Faults<Trouble> faults;
  faults.count(Trouble::kFlood);
  CHECK(faults.passed(Trouble::kFlood) == 0);
  for (int i = 0; i < 5; ++i) CHECK_FALSE(faults.take(Trouble::kFlood));
  CHECK(faults.passed(Trouble::kFlood) == 5);
}

TEST_CASE("of many threads that meet an armed fault one is hit") {
  Faults<Trouble> faults;
  faults.arm(Trouble::kFire, 500);
  Atomic<int> hits{0};
  run_together(4, [&](int) {
    for (int i = 0; i < 200; ++i) hits.add_relaxed(faults.take(Trouble::kFire) ? 1 : 0);
  });
  CHECK(hits.load_relaxed() == 1);
}

}  // namespace heddle::sim
