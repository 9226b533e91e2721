// process_fixture.h: processes that use Heddle from several threads until one of them is in a chosen call of
// the driver.
//
//   What       run_process(body) forks, before this process has used Heddle, and gives how the child ended. A
//              Book is memory that the child and this process share.
//   Threads    run_process(): the only one of this process.
//   Blocks     run_process(), until the child and its own children have ended; after kLimit they are killed.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <heddle/heddle.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <iostream>
#include <string>

#include "base/atomic.h"
#include "tests/child_fixture.h"

namespace heddle::process_points {

constexpr std::chrono::seconds kLimit{30};
constexpr int kEnded = 42, kWhole = 43,
              kWrong = 3;  // exit codes: at the point; it never came; a wrong answer

struct Book {
  Atomic<int64_t> calls{0};               // of the driver
  Atomic<int64_t> right{0}, refused{0};   // steps
  Atomic<int64_t> failed{0};              // steps, with the error of a fault
  Atomic<int64_t> asked{0};               // by forked children
  Atomic<int64_t> taken{0}, answered{0};  // submissions
  Atomic<int64_t> closing_ns{0};          // that exit() took for what is ours
  // The last step that began, of any thread; and what a forked child asked for last.
  Atomic<const char*> at{nullptr}, child_at{nullptr};
};

// Pages that the child and its children write, too.
class SharedBook {
 public:
  SharedBook() {
    void* const pages =
        mmap(nullptr, sizeof(Book), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED);
    book_ = new (pages) Book();
  }
  ~SharedBook() { munmap(book_, sizeof(Book)); }
  SharedBook(const SharedBook&) = delete;
  SharedBook& operator=(const SharedBook&) = delete;
  Book& operator*() const { return *book_; }
  Book* operator->() const { return book_; }

 private:
  Book* book_;
};

// The pipe is open for as long as one of them lives.
inline test::Child run_process(const std::function<void()>& body) {
  int ends[2] = {};
  REQUIRE(pipe(ends) == 0);
  std::cout.flush();  // or the child's exit would print it again
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    setpgid(0, 0);
    close(ends[0]);
    body();
    _exit(kWrong);
  }
  close(ends[1]);
  test::Child ended;
  pollfd over{.fd = ends[0], .events = POLLIN, .revents = 0};
  const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(kLimit);
  if (poll(&over, 1, static_cast<int>(limit.count())) == 0) {
    ended.hung = true;
    kill(-pid, SIGKILL);
  }
  close(ends[0]);
  test::await_end(pid, ended);
  return ended;
}

inline std::string to_string(const test::Child& ended, const Book& book) {
  const auto word = [](const char* at) { return at == nullptr ? std::string("none") : at; };
  return (ended.hung ? "it hung" : "code " + std::to_string(ended.exit_code)) + ", signal " +
         std::to_string(ended.signal) + ", last step '" + word(book.at.load_acquire()) + "', of a child '" +
         word(book.child_at.load_acquire()) + "'";
}

}  // namespace heddle::process_points
