// Exit at every call of the driver: a process ends with its own exit code while threads of it use Heddle.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>

#include "base/process_exit.h"
#include "base/thread.h"
#include "drivers/host/host_device.h"
#include "work_fixture.h"

namespace heddle::process_points {
namespace {

using SteadyClock = std::chrono::steady_clock;

int64_t now_ns() { return SteadyClock::now().time_since_epoch().count(); }

// exit() waits so long for what runs, and not much longer.
constexpr std::chrono::seconds kPatience{5}, kSoon{4}, kAfterPatience{9};

// What the handler of exit() looks at.
Book* book_of_exit = nullptr;
int64_t began_ns = 0;
bool device_hangs = false;  // so that what it was given may end without an answer, once patience is over

// exit() ends its thread's own objects before it runs any handler, however late that came: from then
// on the thread in the driver goes on beside the handlers.
struct Beginning {
  Work* lets_go = nullptr;
  ~Beginning() {
    began_ns = now_ns();
    if (lets_go != nullptr) lets_go->let_go();
  }
};

// Registered before anything of ours, so that it runs when all of ours has run.
void exit_ends() {
  const Duration closing(began_ns == 0 ? 0 : now_ns() - began_ns);
  if (began_ns != 0) book_of_exit->closing_ns.store_release(closing.count());
  if (device_hangs && closing >= kPatience) return;
  if (book_of_exit->answered.load_acquire() >= book_of_exit->taken.load_acquire()) return;
  std::fputs("a submission that was taken has no answer\n", stderr);
  _exit(kWrong);
}

[[noreturn]] void end_at_the_point(Work& work) {
  static thread_local Beginning beginning;
  const bool came = work.await_point();
  if (came) beginning.lets_go = &work;
  std::exit(came ? kEnded : kWhole);
}

enum class Ends : uint8_t { kMainThread, kAnotherThread };

[[noreturn]] void use_heddle_and_exit(Book& book, int64_t point, Ends which,
                                      const std::optional<Trouble>& trouble = {}) {
  book_of_exit = &book;
  device_hangs = trouble && trouble->error() == Code::deadline;
  std::atexit(exit_ends);
  Work& work = *new Work(book, point, true, trouble);
  if (which == Ends::kMainThread) {
    static_cast<void>(new Thread("opener", [&work] { work.run(); }));
    end_at_the_point(work);
  }
  static_cast<void>(new Thread("ends", [&work] { end_at_the_point(work); }));
  work.run();
  for (;;) pause();  // the other thread has the process end
}

// Without a fault, up to the point that never came.
int64_t calls_of_the_driver() {
  const SharedBook book;
  const test::Child ended = run_process([&] { use_heddle_and_exit(*book, 100'000, Ends::kMainThread); });
  REQUIRE_MESSAGE(ended.exit_code == kWhole, to_string(ended, *book));
  return book->calls.load_acquire();
}

// Libraries' first uses have the handler of exit() registered several times.
[[noreturn]] void submit_in_vain_and_exit(Book& book) {
  book_of_exit = &book;
  device_hangs = true;
  std::atexit(exit_ends);
  const Opened& opened = *new Opened(open_sim("sim", 1, [] {}));
  const Model& model = *new Model(affine(opened.device));
  for (int time = 0; time < 6; ++time) renew_exit_handler();
  const Tensor x = rows(1, 1);
  if (is_affine(x, model({x})[0])) book.right.add_relaxed(1);
  opened.driver->faults().arm(sim::Fault::kLostCompletion, 1);
  model.submit({&x, 1}, {}, [&book](const auto&, const auto&) { book.answered.add_release(1); });
  book.taken.add_relaxed(1);
  static thread_local Beginning beginning;
  std::exit(kEnded);
}

// What opening another device does; then a static object is made, and after it the host device.
[[noreturn]] void open_the_host_after_another(Book& book) {
  book_of_exit = &book;
  set_exit_handler([] { book_of_exit->closing_ns.store_release(1); });
  std::atexit([] { book_of_exit->right.add_relaxed(book_of_exit->closing_ns.load_acquire()); });
  if (!host::make_host_device({.threads = 1}).ok()) _exit(kWrong);
  std::exit(kEnded);
}

struct Tried {
  int64_t points = 0, right = 0, refused = 0, failed = 0;
  Duration longest{0};  // that exit() took
};

// The fault is there from the call on at which the process ends, or from one half as far.
void exit_with(const sim::FaultLine& line, int64_t point, int64_t from, Tried& tried) {
  const Ends which = point % 2 == 0 ? Ends::kMainThread : Ends::kAnotherThread;
  const Trouble trouble = trouble_from(line, from);
  const SharedBook book;
  const test::Child ended = run_process([&] { use_heddle_and_exit(*book, point, which, trouble); });
  const bool came = ended.exit_code == kEnded;
  REQUIRE_MESSAGE((came || ended.exit_code == kWhole), line.word, " from call ", from, ", exit at call ",
                  point, ": ", to_string(ended, *book));
  tried.points += came ? 1 : 0;
  tried.right += book->right.load_acquire();
  tried.refused += book->refused.load_acquire();
  tried.failed += book->failed.load_acquire();
  tried.longest = std::max(tried.longest, Duration(book->closing_ns.load_acquire()));
}

// HEDDLE_EXIT_POINTS=3 takes each third point.
int64_t stride() {
  const char* const given = std::getenv("HEDDLE_EXIT_POINTS");
  return given == nullptr ? 1 : std::stoll(given);
}

}  // namespace

TEST_CASE("a process exits with its own code at each call of the driver, whichever thread is in it") {
  for (const Ends which : {Ends::kMainThread, Ends::kAnotherThread}) {
    int64_t points = 0, refused = 0, right = 0;
    for (int64_t point = 1;; ++point) {
      const SharedBook book;
      const test::Child ended = run_process([&] { use_heddle_and_exit(*book, point, which); });
      const bool whole = ended.exit_code == kWhole;
      REQUIRE_MESSAGE((whole || ended.exit_code == kEnded), "at call ", point, ": ", to_string(ended, *book));
      CHECK(Duration(book->closing_ns.load_acquire()) < kSoon);  // nobody is waited for until patience ends
      right += book->right.load_acquire();
      refused += book->refused.load_acquire();
      if (whole) break;
      ++points;
    }
    MESSAGE(points, " points, ", right, " steps were right and ", refused, " refused");
    CHECK(points > 30);
    CHECK(right > points);
    CHECK(refused > points);
  }
}

TEST_CASE("exit waits once for a submission that never ends, however often its handler is registered") {
  const SharedBook book;
  const test::Child ended = run_process([&] { submit_in_vain_and_exit(*book); });
  REQUIRE_MESSAGE(ended.exit_code == kEnded, to_string(ended, *book));
  CHECK(book->right.load_acquire() == 1);
  CHECK(book->taken.load_acquire() == 1);
  CHECK(book->answered.load_acquire() == 0);
  CHECK(Duration(book->closing_ns.load_acquire()) >= kPatience);
  CHECK(Duration(book->closing_ns.load_acquire()) < kAfterPatience);
}

TEST_CASE(
    "a host device opened after another device has exit's handler run before older static objects die") {
  const SharedBook book;
  const test::Child ended = run_process([&] { open_the_host_after_another(*book); });
  REQUIRE_MESSAGE(ended.exit_code == kEnded, to_string(ended, *book));
  CHECK(book->right.load_acquire() == 1);
}

TEST_CASE("a process exits with its own code while its device fails, whatever the fault and the call") {
  const int64_t calls = calls_of_the_driver();
  Tried all;
  for (const sim::FaultLine& line : sim::kFaultLines) {
    const bool hangs = line.error == Code::deadline;
    const int64_t step = hangs ? calls : stride();
    Tried tried;
    for (int64_t point = 1 + static_cast<int64_t>(line.fault) % step; point <= calls; point += step) {
      const int64_t at = hangs ? calls / 2 : point;
      exit_with(line, at, at, tried);
      if (!hangs) exit_with(line, at, (at + 1) / 2, tried);
    }
    CAPTURE(line.word);
    CHECK(tried.points > 0);
    CHECK(tried.longest < (hangs ? kAfterPatience : kSoon));
    all.points += tried.points, all.right += tried.right;
    all.refused += tried.refused, all.failed += tried.failed;
  }
  MESSAGE(all.points, " points, ", all.right, " steps were right, ", all.refused, " refused and ", all.failed,
          " failed");
  CHECK(all.points > static_cast<int64_t>(std::size(sim::kFaultLines)) * calls / stride() / 2);
  CHECK(all.failed > all.points / 4);
  CHECK(all.refused > all.points / 2);
}

}  // namespace heddle::process_points
