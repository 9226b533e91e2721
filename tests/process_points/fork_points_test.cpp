// Fork at every call of the driver: the child is refused by each operation, ends what it has inherited and
// exits; the parent notices nothing.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "api/internals.h"
#include "base/process_exit.h"
#include "base/thread.h"
#include "tests/child_fixture.h"
#include "work_fixture.h"

namespace heddle::process_points {
namespace {

// On a device that does nothing from now on: what a child could wait for without end.
struct Held {
  std::optional<Opened> opened;
  std::unique_ptr<Things> things;
};

Held hold_a_device() {
  Held held{open_sim("sim:1", 1, {}), nullptr};
  const Model model = affine(held.opened->device);
  make_things(held.opened->device, model)->future.wait();  // what is compiled has been
  held.opened->driver->hold();
  held.things = make_things(held.opened->device, model);
  return held;
}

// kWaits: refused where what it waits for is not over. kAny: it returns, whatever it says.
enum class Answer : uint8_t { kRefused, kWaits, kAny };

struct Deed {
  const char* name;
  void (*run)(const Things& of);
  Answer answer = Answer::kRefused;
};

const Tensor& some_rows() {
  static const Tensor x = rows(1, 1);
  return x;
}

const Deed kDeeds[] = {
    {"a call", [](const Things& of) { of.model({some_rows()}); }},
    {"a call on a stream",
     [](const Things& of) {
       CallOptions options;
       options.stream = of.stream;
       of.model({some_rows()}, options);
     }},
    {"a submission",
     [](const Things& of) { of.model.submit({&some_rows(), 1}, {}, [](const auto&, const auto&) {}); }},
    {"a brief call", [](const Things& of) { of.model.try_brief({&some_rows(), 1}, std::chrono::seconds(1)); },
     Answer::kAny},
    {"requests that run together",
     [](const Things& of) {
       const std::vector<std::vector<Tensor>> requests = {{some_rows()}};
       for (const auto& outcome : of.model.run_together(requests)) {
         if (outcome.error != nullptr) std::rethrow_exception(outcome.error);
       }
     }},
    {"a compilation",
     [](const Things& of) {
       const std::vector<Shape> shapes = {{7, 4}};
       of.model.compile(shapes);
     }},
    {"a plan",
     [](const Things& of) {
       const std::vector<Shape> shapes = {{7, 4}};
       of.model.plan(shapes, {});
     }},
    {"loading a model", [](const Things& of) { affine(of.device); }},
    {"opening a device", [](const Things&) { open_sim("sim", 1, {}); }},
    {"the process's device", [](const Things&) { Device("sim:2").synchronize(); }},
    {"synchronizing", [](const Things& of) { of.device.synchronize(); }},
    {"emptying the cache", [](const Things& of) { of.device.empty_cache(); }},
    {"the device's figures", [](const Things& of) { static_cast<void>(of.device.stats()); }},
    {"an exclusive hold", [](const Things& of) { const Exclusive hold(of.device); }},
    {"a stream", [](const Things& of) { const Stream stream(of.device); }},
    {"the thread's stream", [](const Things& of) { current_stream(of.device); }},
    {"the default stream", [](const Things& of) { default_stream(of.device).synchronize(); }},
    {"giving the thread's stream back", [](const Things& of) { release_current_thread_slot(of.device); },
     Answer::kAny},
    {"a stream of the pool", [](const Things& of) { StreamPool(of.device).acquire(); }},
    {"a stream of the pool, if there is one", [](const Things& of) { StreamPool(of.device).try_acquire(); }},
    {"recording an event", [](const Things& of) { of.stream.record(); }, Answer::kAny},
    {"waiting on a stream", [](const Things& of) { of.stream.wait(of.event); }, Answer::kWaits},
    {"a copy", [](const Things& of) { of.stream.copy(of.result, Tensor::zeros(DType::f32, {1, 4})); },
     Answer::kWaits},
    {"looking at a stream", [](const Things& of) { static_cast<void>(of.stream.query()); }, Answer::kAny},
    {"synchronizing a stream", [](const Things& of) { of.stream.synchronize(); }, Answer::kWaits},
    {"looking at an event", [](const Things& of) { static_cast<void>(of.event.query()); }, Answer::kAny},
    {"the time between events", [](const Things& of) { of.event.elapsed_ms(of.stream.record()); }},
    {"waiting for an event", [](const Things& of) { of.event.wait(); }, Answer::kWaits},
    {"memory of the device", [](const Things& of) { Tensor::empty(DType::f32, {1, 4}, of.device); }},
    {"pinned memory", [](const Things& of) { Tensor::pinned(DType::f32, {1, 4}, of.device); }},
    {"waiting for a result", [](const Things& of) { of.result.wait(); }, Answer::kWaits},
    {"reading a result", [](const Things& of) { of.result.values<float>(); }, Answer::kWaits},
    {"bringing a result to the host", [](const Things& of) { of.result.to_host(); }, Answer::kWaits},
    {"recording a tensor's use", [](const Things& of) { of.result.record_stream(of.stream); }},
    {"a request", [](const Things& of) { of.queue->submit({some_rows()}); }},
    {"the answer to a request", [](const Things& of) { of.future.get(); }, Answer::kWaits},
    {"waiting for a request", [](const Things& of) { of.future.wait(); }, Answer::kWaits},
    {"cancelling a request", [](const Things& of) { of.future.cancel(); }, Answer::kAny},
    {"a queue's figures", [](const Things& of) { of.queue->metrics(); }, Answer::kAny},
    {"a queue's health", [](const Things& of) { of.queue->health(); }, Answer::kAny},
    {"draining a queue", [](const Things& of) { of.queue->drain(); }},
    {"a queue of its own", [](const Things& of) { BatchQueue(of.model).submit({some_rows()}).get(); }},
    {"closing a queue", [](const Things& of) { of.queue->close(); }, Answer::kAny},
    {"closing a model", [](const Things& of) { of.model.close(); }, Answer::kAny},
    {"closing a device", [](const Things& of) { of.device.close(); }, Answer::kAny},
};

using MayBeTrouble = std::optional<Trouble>;

// True: it was answered as it has to be. What it waits for may have ended with the error of the trouble.
bool is_answered(const Deed& deed, const Things& of, bool is_over, const MayBeTrouble& trouble) {
  try {
    deed.run(of);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unavailable) return true;
    const bool has_failed = trouble && static_cast<Code>(error.code()) == trouble->error();
    if (has_failed && deed.answer != Answer::kRefused) return true;
    std::fprintf(stderr, "in a forked child, %s: %s\n", deed.name, error.what());
    return false;
  }
  if (deed.answer == Answer::kAny || (deed.answer == Answer::kWaits && is_over)) return true;
  std::fprintf(stderr, "in a forked child, %s is not refused\n", deed.name);
  return false;
}

bool are_answered(Book& book, const Things& of, bool may_be_over, const MayBeTrouble& trouble) {
  bool right = true;
  for (const Deed& deed : kDeeds) {
    book.child_at.store_release(deed.name);
    right = is_answered(deed, of, may_be_over, trouble) && right;
    book.asked.add_relaxed(1);
  }
  return right;
}

// It ends all that it has inherited, and then itself.
[[noreturn]] void be_the_child(Book& book, Held& held, const Things* things, const MayBeTrouble& trouble) {
  bool right = are_answered(book, *held.things, false, {});
  if (things != nullptr) right = are_answered(book, *things, true, trouble) && right;
  book.child_at.store_release("the end of what a child has inherited");
  delete things;
  held.things.reset();
  held.opened.reset();
  book.child_at.store_release("the exit of a child");
  std::exit(right ? kEnded : kWrong);
}

[[noreturn]] void use_heddle_and_fork(Book& book, int64_t point, const MayBeTrouble& trouble = {}) {
  Held held = hold_a_device();
  Work work(book, point, false, trouble);
  const Thread opener("opener", [&work] { work.run(); });
  const bool came = work.await_point();
  int code = kWhole;
  if (came) {
    const pid_t child = fork();
    if (child == 0) be_the_child(book, held, work.things(), trouble);
    int status = 0;
    waitpid(child, &status, 0);
    code = WIFEXITED(status) ? WEXITSTATUS(status) : kWrong;
    book.at.store_release("the parent goes on");
    work.let_go();
    work.await_end();
  }
  held.opened->driver->release();
  if (!is_affine(rows(1, 1), held.things->result.to_host())) code = kWrong;
  std::_Exit(code);
}

// Without a fault, up to the point that never came.
int64_t calls_until_whole() {
  const SharedBook book;
  const test::Child ended = run_process([&] { use_heddle_and_fork(*book, 100'000); });
  REQUIRE_MESSAGE(ended.exit_code == kWhole, to_string(ended, *book));
  return book->calls.load_acquire();
}

constexpr int kForks = 100;

// One thread repeats a step over and over, and each child does it once. A child that finds a lock taken waits
// for it without end, and its alarm ends it.
[[noreturn]] void repeat_and_fork(Book& book, void (*begin)(), void (*step)()) {
  constexpr int64_t kMost = 4'000'000;  // of a registration with exit(), which takes 32 bytes for good
  Atomic<int> is_over{0};
  begin();
  Thread repeats("repeats", [&] {
    while (is_over.load_acquire() == 0 && book.right.add_relaxed(1) < kMost) step();
  });
  while (book.right.load_acquire() == 0) std::this_thread::yield();
  for (int i = 0; i < kForks; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(5);
      try {
        step();
      } catch (const Error& error) {
        if (error.code() != ErrorCode::unavailable) _exit(kWrong);
      }
      _exit(kEnded);
    }
    int status = 0;
    waitpid(child, &status, 0);
    book.asked.add_relaxed(WIFEXITED(status) && WEXITSTATUS(status) == kEnded ? 1 : 0);
    if (WIFSIGNALED(status)) break;
  }
  is_over.store_release(1);
  repeats.join();
  std::_Exit(kEnded);
}

void check_children(void (*begin)(), void (*step)()) {
  const SharedBook book;
  const test::Child ended = run_process([&] { repeat_and_fork(*book, begin, step); });
  REQUIRE_MESSAGE(ended.exit_code == kEnded, to_string(ended, *book));
  CHECK(book->right.load_acquire() > kForks);
  CHECK(book->asked.load_acquire() == kForks);
}

// Of a device that works on; made in the process that run_process() makes.
const Things* shared_things = nullptr;

void share_things() {
  static Opened opened = open_sim("sim", 1, {});
  shared_things = make_things(opened.device, affine(opened.device)).release();
  shared_things->result.wait();
}

void configure_host() { Device::configure("host", {}); }
void read_shared() { shared_things->result.wait(); }
void record_shared() { shared_things->stream.record(); }

}  // namespace

TEST_CASE(
    "a child forked at each call of the driver is refused by each operation, ends what it has inherited and "
    "exits, and its parent notices nothing" *
    doctest::skip(!heddle::test::kForksWithThreads)) {
  int64_t points = 0, asked = 0;
  for (int64_t point = 1;; ++point) {
    const SharedBook book;
    const test::Child ended = run_process([&] { use_heddle_and_fork(*book, point); });
    const bool whole = ended.exit_code == kWhole;
    REQUIRE_MESSAGE((whole || ended.exit_code == kEnded), "at call ", point, ": ", to_string(ended, *book));
    if (whole) break;
    ++points;
    asked += book->asked.load_acquire();
  }
  MESSAGE(points, " points, ", asked, " operations of children");
  CHECK(points > 30);
  CHECK(asked > points * 40);
}

// A device that hangs has no parent whose steps end; the children's other device is such a one.
TEST_CASE(
    "a child forked while a device fails is refused by each operation, and its parent gets right values "
    "or the fault's error" *
    doctest::skip(!heddle::test::kForksWithThreads)) {
  constexpr int64_t kStep = 6;
  const int64_t calls = calls_until_whole();
  int64_t points = 0, asked = 0, failed = 0, planned = 0;
  for (const sim::FaultLine& line : sim::kFaultLines) {
    if (line.error == Code::deadline) continue;
    for (int64_t point = 1 + static_cast<int64_t>(line.fault) % kStep; point <= calls; point += kStep) {
      for (const int64_t from : {point, (point + 1) / 2}) {
        const SharedBook book;
        const auto trouble = trouble_from(line, from);
        const test::Child ended = run_process([&] { use_heddle_and_fork(*book, point, trouble); });
        const bool came = ended.exit_code == kEnded;
        REQUIRE_MESSAGE((came || ended.exit_code == kWhole), line.word, " from call ", from,
                        ", fork at call ", point, ": ", to_string(ended, *book));
        points += came ? 1 : 0, ++planned;
        asked += book->asked.load_acquire();
        failed += book->failed.load_acquire() + book->refused.load_acquire();
      }
    }
  }
  MESSAGE(points, " points of ", planned, ", ", asked, " operations of children, ", failed,
          " steps of parents had the fault's error");
  CHECK(points > planned / 2);
  CHECK(asked > points * 40);
  CHECK(failed > points / 4);
}

TEST_CASE("a child that is forked while another thread registers the handler of exit can register it, too" *
          doctest::skip(!heddle::test::kForksWithThreads)) {
  check_children([] { set_exit_handler([] {}); }, renew_exit_handler);
}

TEST_CASE("a child that is forked while another thread configures a device configures it or is refused" *
          doctest::skip(!heddle::test::kForksWithThreads)) {
  check_children([] {}, configure_host);
}

TEST_CASE("a child that is forked while another thread reads a result reads it, too, or is refused" *
          doctest::skip(!heddle::test::kForksWithThreads)) {
  check_children(share_things, read_shared);
}

TEST_CASE("a child that is forked while another thread records an event records one, too, or is refused" *
          doctest::skip(!heddle::test::kForksWithThreads)) {
  check_children(share_things, record_shared);
}

}  // namespace heddle::process_points
