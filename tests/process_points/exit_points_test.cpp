// Exit at every call of the driver: a process ends with its own exit code while threads of it use Heddle.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/thread.h"
#include "work_fixture.h"

namespace heddle::process_points {
namespace {

using SteadyClock = std::chrono::steady_clock;

int64_t now_ns() { return SteadyClock::now().time_since_epoch().count(); }

// What the handler of exit() looks at.
Book* book_of_exit = nullptr;
int64_t began_ns = 0;

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
  if (began_ns != 0) book_of_exit->closing_ns.store_release(now_ns() - began_ns);
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

[[noreturn]] void use_heddle_and_exit(Book& book, int64_t point, Ends which) {
  book_of_exit = &book;
  std::atexit(exit_ends);
  Work& work = *new Work(book, point, true);
  if (which == Ends::kMainThread) {
    static_cast<void>(new Thread("opener", [&work] { work.run(); }));
    end_at_the_point(work);
  }
  static_cast<void>(new Thread("ends", [&work] { end_at_the_point(work); }));
  work.run();
  for (;;) pause();  // the other thread has the process end
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
      // Nobody is waited for until the end of patience, which is 5 s.
      CHECK(book->closing_ns.load_acquire() < 4'000'000'000);
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

}  // namespace heddle::process_points
