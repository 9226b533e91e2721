#include "base/yield.h"

#include <doctest/doctest.h>

namespace heddle {
namespace {

TEST_CASE("a backoff pauses only so often") {
  Backoff backoff;
  int spins = 0;
  while (backoff.spin()) ++spins;
  CHECK(spins == Backoff::kLimit);
  CHECK(!backoff.spin());
}

}  // namespace
}  // namespace heddle
