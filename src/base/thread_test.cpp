#include "base/thread.h"

#include <doctest/doctest.h>
#include <pthread.h>

#include <string>
#include <vector>

namespace heddle {
namespace {

TEST_CASE("a thread runs its body once and is joined by its destructor") {
  int runs = 0;
  {
    Thread thread("worker", [&] { ++runs; });
  }
  CHECK(runs == 1);
}

TEST_CASE("a thread bears its name, cut to what the system keeps") {
  for (const auto& [given, kept] : std::vector<std::pair<std::string, std::string>>{
           {"heddle-reaper", "heddle-reaper"}, {"a-very-long-thread-name", "a-very-long-thr"}, {"", ""}}) {
    std::string seen = "unset";
    Thread(given, [&seen] {
      char name[64] = "";
      pthread_getname_np(pthread_self(), name, sizeof(name));
      seen = name;
    }).join();
    CHECK(seen == kept);
  }
}

TEST_CASE("assigning a thread joins the one that was there") {
  int first = 0, second = 0;
  Thread thread("first", [&] { first = 1; });
  thread = Thread("second", [&] { second = 1; });
  CHECK(first == 1);
  CHECK(thread.joinable());
  thread.join();
  CHECK(!thread.joinable());
  CHECK(second == 1);
}

TEST_CASE("start gives a running thread") {
  Atomic<int> runs;
  {
    Result<Thread> thread = Thread::start("started", [&] { runs.add_relaxed(1); });
    REQUIRE(thread.ok());
  }
  CHECK(runs.load_relaxed() == 1);
}

TEST_CASE("run together calls each index once and has all inside at the same time") {
  constexpr int kThreads = 16;
  std::vector<int> calls(kThreads);
  Atomic<int> inside;
  run_together(kThreads, [&](int i) {
    ++calls[static_cast<size_t>(i)];
    // Returns only if all the others get here as well.
    if (inside.add_acq_rel(1) == kThreads - 1) inside.notify_all();
    for (int seen = inside.load_acquire(); seen != kThreads; seen = inside.load_acquire()) inside.wait(seen);
  });
  CHECK(calls == std::vector<int>(kThreads, 1));
}

}  // namespace
}  // namespace heddle
