#include "base/first_failure.h"

#include <doctest/doctest.h>

#include <string>

#include "base/thread.h"

namespace heddle {
namespace {

TEST_CASE("of failures that threads record at once all find one, and it stays") {
  constexpr int kThreads = 4, kRounds = 2000;
  for (int round = 0; round < kRounds; ++round) {
    FirstFailure failure;
    CHECK(failure.status().ok());
    std::string found[kThreads];
    run_together(kThreads, [&](int i) {
      failure.record(Status::internal("cause ", i));
      found[i] = failure.status().message();
    });
    for (const std::string& each : found) REQUIRE(each == failure.status().message());
    REQUIRE(found[0].find("cause ") == 0);
  }
}

}  // namespace
}  // namespace heddle
