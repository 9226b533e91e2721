// mailbox.h: answers on their way to an event loop.
//
//   What       A model's threads put answers in, without the GIL; the loop's thread takes all that are there.
//              The loop watches one end of a pipe. The first answer in an empty mailbox writes to the other:
//              answers that come while the loop is busy wake it once.
//   Life       The loop has it, and each call under way. It closes the pipe, and drops what a loop that was
//              closed did not take, with the last of these.
//   Threads    put() on any; the rest on the loop's.
//   Fork       There is no lock that a child could find taken.
#pragma once

#include <heddle/heddle.h>

#include <atomic>
#include <exception>
#include <memory>
#include <vector>

namespace heddle::python {

// The answer to one call.
struct Letter {
  uint64_t call = 0;
  std::vector<Tensor> results;
  std::exception_ptr error;
  Letter* before = nullptr;  // in the mailbox
};
using Letters = std::vector<std::unique_ptr<Letter>>;

class Mailbox {
 public:
  // The two ends of a pipe, which the mailbox closes. Neither may wait.
  Mailbox(int read_end, int write_end) : read_end_(read_end), write_end_(write_end) {}
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  uint64_t next_call() { return ++calls_; }
  void put(std::unique_ptr<Letter> letter);
  Letters take();  // in the order in which they came

 private:
  std::atomic<Letter*> latest_{nullptr};  // leads to those before it
  uint64_t calls_ = 0;
  const int read_end_;
  const int write_end_;
};

}  // namespace heddle::python
