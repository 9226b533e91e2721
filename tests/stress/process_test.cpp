// process_test.cpp: how processes begin and end: exit while busy, fork, exec, atexit. Each scenario is a
// skipped test case of this program, run in a process of its own by the test that judges its exit code.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "harness_fixture.h"
#include "tests/child_fixture.h"

namespace stress {
namespace {

constexpr int kBusyExit = 42;

// Runs one scenario of this program in a new process; its exit code, or 128 + the signal, or -1 when it
// hangs.
int run_scenario(const std::string& name) {
  // The scenarios leave their threads behind: that is the point.
  const heddle::test::Child child = heddle::test::run_child(name, {"ASAN_OPTIONS=detect_leaks=0"});
  if (child.hung) return -1;
  if (child.exit_code != kBusyExit) std::fputs(child.said.c_str(), stderr);
  return child.signal != 0 ? 128 + child.signal : child.exit_code;
}

// Threads that call a model for ever; the process exits under them.
void start_busy_threads(const Case& c, std::atomic<int>& calls) {
  for (int t = 0; t < 8; ++t) {
    auto* thread = new std::jthread([&c, &calls] {  // never joined: that is the scenario
      for (size_t i = 0;; ++i) {
        try {
          if (!c.call(i)) _exit(3);
          ++calls;
        } catch (const heddle::Error& e) {
          // Refused once the process is ending.
          if (e.code() == heddle::ErrorCode::unavailable) continue;
          std::fputs(e.what(), stderr);
          _exit(4);
        }
      }
    });
    (void)thread;
  }
  while (calls < 64) std::this_thread::yield();
}

}  // namespace

TEST_CASE("scenario: exit while eight threads are busy" * doctest::skip()) {
  static std::atomic<int> calls = 0;
  start_busy_threads(*new Case(encoder()), calls);
  std::exit(kBusyExit);
}

TEST_CASE("the process exits with eight threads busy, again and again") {
  // Under a sanitizer a child takes seconds, most of them before its threads start.
  for (int i = 0; i < (heddle::test::kSanitized ? 3 : 10); ++i)
    CHECK(run_scenario("scenario: exit while eight threads are busy") == kBusyExit);
}

TEST_CASE("scenario: a model is called from atexit" * doctest::skip()) {
  static Case* c = new Case(mlp());
  CHECK(c->call(0));
  CHECK(std::atexit([] { _exit(c->call(1) ? kBusyExit : 3); }) == 0);
  std::exit(5);
}

TEST_CASE("a model may be called from an atexit handler") {
  CHECK(run_scenario("scenario: a model is called from atexit") == kBusyExit);
}

TEST_CASE("scenario: fork with eight threads busy" * doctest::skip()) {
  static std::atomic<int> calls = 0;
  const Case& c = *new Case(encoder());
  start_busy_threads(c, calls);
  const pid_t child = fork();
  if (child == 0) {
    try {
      c.model(c.inputs[0]);
    } catch (const heddle::Error& e) {
      std::exit(e.code() == heddle::ErrorCode::unavailable ? 0
                                                           : 6);  // and the child's own exit does not hang
    }
    _exit(7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) _exit(8);
  for (size_t i = 0; i < 100; ++i) {
    if (!c.call(i)) _exit(9);
  }
  _exit(kBusyExit);
}

TEST_CASE("a forked child is refused in words and its parent runs a hundred operations more" *
          doctest::skip(!heddle::test::kForksWithThreads)) {
  CHECK(run_scenario("scenario: fork with eight threads busy") == kBusyExit);
}

TEST_CASE("scenario: a fresh process runs a model" * doctest::skip()) {
  const Case c = mlp();
  _exit(c.call(0) && c.call(1) ? kBusyExit : 3);
}

TEST_CASE("a process spawned from a busy one runs a model of its own") {
  const Case c = mlp();
  std::atomic<int> right = 0;
  const auto errors = run_threads(4, [&](int thread) {
    if (thread == 0) {
      right += run_scenario("scenario: a fresh process runs a model") == kBusyExit ? 1 : 0;
      return;
    }
    for (size_t i = 0; i < 50; ++i) right += c.call(i) ? 1 : 0;
  });
  CHECK(errors.empty());
  CHECK(right == 151);
}

TEST_CASE("scenario: thirty-one streams with counted locks" * doctest::skip()) {
  heddle::DeviceOptions options;
  options.in_flight = 63;  // so that no call waits for its turn, which is scheduling and not a lock
  const heddle::Device device = fresh_device(options);
  const Case c = small(device);
  for (size_t i = 0; i < c.inputs.size(); ++i) CHECK(c.call(i));
  std::atomic<int> right = 0;
  std::atomic<int> warm = 0;
  std::atomic<int> done = 0;
  const auto errors = run_threads(31, [&](int thread) {
    const heddle::Stream stream(device);
    for (size_t i = 0; i < 4; ++i) right += c.call(i, on(stream)) ? 1 : 0;
    if (++warm == 31) {
      heddle::reset_lock_stats();
      heddle::count_locks(true);
      ++warm;
    }
    while (warm < 32) std::this_thread::yield();
    for (size_t i = 0; i < 200; ++i) right += c.call(static_cast<size_t>(thread) + i, on(stream)) ? 1 : 0;
    if (++done == 31) {
      heddle::count_locks(false);
      ++done;
    }
    while (done < 32) std::this_thread::yield();  // returning a stream is not a call
  });
  for (const std::string& error : errors) FAIL_CHECK(error);
  CHECK(right == 31 * 204);
  for (const heddle::LockStats& lock : heddle::lock_stats()) {
    if (lock.name ==
        "pool") {  // a lane that no call has used yet makes its stream, once; warm calls do not come here
      CHECK(lock.acquisitions <= static_cast<uint64_t>(options.in_flight));
      continue;
    }
    CHECK_MESSAGE(lock.contentions == 0, lock.name, ": ", lock.contentions, " of ", lock.acquisitions);
  }
}

// In a process of its own: the number of calls in flight is decided at a device's first use, and locks are
// counted for the process.
TEST_CASE("warm calls on thirty-one streams wait on no lock that streams share") {
  CHECK(run_scenario("scenario: thirty-one streams with counted locks") == 0);
}

}  // namespace stress
