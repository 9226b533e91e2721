// batch_future.h: what stands behind a BatchFuture, and the pieces of a request that wait in a queue.
//
//   What       A FutureRep is answered once: with results, with an exception, or by cancel(). A Job is a
//              payload of the RequestQueue: a request, or some rows of one that has more than a batch.
//   States     waiting -> running (begin) -> answered; waiting -> answered (cancel, deadline, close).
//   Fork       In a child nobody answers, and a thread of the parent's may have held the lock: every question
//              throws unavailable there, and no answer is taken.
//   Threads    Any. A job belongs to the thread that got it from the queue.
//   Blocks     wait_until(). Callbacks run on the thread that answers, with no lock held.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "api/internals.h"
#include "base/fork.h"
#include "base/sync.h"
#include "batch/requests/request_queue.h"

namespace heddle {

using FutureRep = Internals::BatchFutureRep;

struct BatchFuture::Rep : std::enable_shared_from_this<BatchFuture::Rep> {
  bool begin();  // false: answered already, so that nothing has to run
  void give(std::vector<Tensor> results);
  void fail(const std::exception_ptr& error);
  bool answered() const;
  bool wait_until(Deadline deadline) const;
  std::vector<Tensor> get() const;
  void then(std::function<void(const BatchFuture&)> callback);
  bool cancel();

  std::weak_ptr<batch::RequestQueue> queue;  // set, like ids, before anyone but the submitter has it
  std::vector<uint64_t> ids;

 private:
  struct State {
    bool running = false, over = false;
    std::vector<Tensor> results;
    std::exception_ptr error;
    std::vector<std::function<void(const BatchFuture&)>> callbacks;
  };
  bool answer(std::vector<Tensor> results, const std::exception_ptr& error);  // false: it has one
  bool is_ours() const { return fork_generation() == generation_; }
  void check_ours() const {
    if (!is_ours()) throw_status(forked());
  }

  const uint32_t generation_ = fork_generation();  // of the maker
  mutable Guarded<State, Rank::kBatch> state_;
};

// Collects the results of the parts of one request.
struct Whole {
  explicit Whole(size_t parts) : results(parts), missing(static_cast<int64_t>(parts)) {}
  std::vector<std::vector<Tensor>> results;  // each written by the thread that answers that part
  // The thread that takes it to zero (acq_rel) sees all results and joins them.
  Atomic<int64_t> missing;
};

struct Job {
  std::shared_ptr<FutureRep> target;
  std::vector<Tensor> inputs;
  int64_t rows = 0;
  int64_t length = 0;  // of axis 1, where inputs are padded
  std::shared_ptr<Whole> whole;
  size_t number = 0;  // of the part

  void give(std::vector<Tensor> results);
};

using Jobs = std::vector<std::unique_ptr<Job>>;
Jobs to_jobs(const std::vector<void*>& payloads);  // takes them over

}  // namespace heddle
