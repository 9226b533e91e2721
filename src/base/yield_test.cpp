// The simulator's side of the seams. The other base tests run through the native one.
#if !defined(HEDDLE_SIM)
#define HEDDLE_SIM
#endif
#include "base/yield.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace heddle {
namespace {

class Recorder final : public Scheduler {
 public:
  void yield(const char* name) override { names.emplace_back(name); }
  std::vector<std::string> names;
};

TEST_CASE("an installed scheduler sees every seam, and none after its removal") {
  Recorder recorder;
  yield_point("before");
  install_scheduler(&recorder);
  yield_point("here");
  give_way();
  Backoff backoff;
  CHECK(backoff.spin());
  install_scheduler(nullptr);
  yield_point("after");
  CHECK(recorder.names == std::vector<std::string>{"here", "give_way", "backoff"});
}

TEST_CASE("a backoff pauses longer each time, and only so often") {
  Recorder recorder;
  install_scheduler(&recorder);
  Backoff backoff;
  int spins = 0;
  size_t last = 0;
  for (size_t seen = 0; backoff.spin(); ++spins) {
    const size_t pauses = recorder.names.size() - seen;
    CHECK(pauses > last);
    last = pauses;
    seen = recorder.names.size();
  }
  const size_t total = recorder.names.size();
  CHECK(!backoff.spin());
  install_scheduler(nullptr);
  CHECK(spins == Backoff::kLimit);
  CHECK(total == (size_t{1} << Backoff::kLimit) - 1);
  CHECK(recorder.names.size() == total);
}

}  // namespace
}  // namespace heddle
