#include "base/first_uses.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/thread.h"

namespace heddle {
namespace {

TEST_CASE(
    "the handler of exit is registered for each new kind of step, and for no other program without end") {
  FirstUses runs;
  for (uint64_t i = 0; i < FirstUses::kFirst; ++i) runs.note({"Add"});
  CHECK(runs.registered() == FirstUses::kFirst);
  runs.note({"Add"});  // the one after those: a doubling
  runs.note({"Add"});
  const uint64_t before = runs.registered();
  CHECK(before == FirstUses::kFirst + 1);
  runs.note({"Add", "MatMul brgemm"});
  runs.note({"MatMul gemm"});
  CHECK(runs.registered() == before + 2);
  for (int i = 0; i < 100'000; ++i) runs.note({"MatMul gemm", "Add", "MatMul brgemm"});
  CHECK(runs.registered() <= before + 2 + 10);  // 256 to 131,072
}

TEST_CASE("programs of many threads that run for the first time at once are each counted") {
  constexpr int kThreads = 8, kEach = 2000;
  FirstUses runs;
  {
    std::vector<Thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back("first", [&, t] {
        for (int i = 0; i < kEach; ++i) runs.note({"op " + std::to_string(t * kEach + i)});
      });
    }
  }
  CHECK(runs.registered() == kThreads * kEach);
}

}  // namespace
}  // namespace heddle
