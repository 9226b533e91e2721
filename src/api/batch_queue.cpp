// batch_queue.cpp: BatchQueue: worker threads and a keeper around a batch::RequestQueue.
#include <map>

#include "api/batch_future.h"
#include "api/batch_runner.h"
#include "api/batching.h"
#include "base/thread.h"

namespace heddle {
namespace {

std::exception_ptr failure(ErrorCode code, const std::string& message) {
  return std::make_exception_ptr(Error(code, message));
}

void fail_all(batch::Owed owed, const std::exception_ptr& error) {
  const batch::Owed held = std::move(owed);  // until all are answered
  for (const auto& job : to_jobs(held.payloads())) job->target->fail(error);
}

bool is_device_lost(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.code() == ErrorCode::device_lost;
  } catch (...) {  // the function's own kinds of failure
    return false;
  }
}

std::string words_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

int64_t bytes_of(std::span<const Tensor> tensors) {
  int64_t bytes = 0;
  for (const Tensor& t : tensors) bytes += t.elements() * static_cast<int64_t>(size_of(t.dtype()));
  return bytes;
}

}  // namespace

struct BatchQueue::Rep {
  Rep(BatchFunction f, std::optional<Model> seats, const BatchQueueOptions& o)
      : function(std::move(f)),
        seated(std::move(seats)),
        options(o),
        rows(checked({o.pad.has_value(), o.buckets, o.cut})),
        queue(std::make_shared<batch::RequestQueue>(
            to_batch(o.limits, o.workers, o.hang_after, o.replace_hung))),
        max_batch(o.limits.max_batch) {}

  using Targets = std::vector<std::shared_ptr<FutureRep>>;
  struct Roll {
    std::vector<Thread> threads;
    bool keeping = false, closed = false;
    std::map<uint64_t, Targets> running;  // by ticket, where hanging is watched
  };
  struct Outcome {
    std::span<const std::unique_ptr<Job>> jobs;
    Scatter scatter;
    std::exception_ptr error;
  };

  void start(std::function<void()> body);
  void work();
  RunJobs prepare() const;
  void warm(const BatchFunction& call) const;
  bool run(uint64_t ticket, Jobs jobs, const RunJobs& call);  // false: the worker was replaced
  static void answer(std::vector<Outcome>& outcomes);
  std::vector<Outcome> outcomes(const RunJobs& call, std::span<const std::unique_ptr<Job>> jobs,
                                uint64_t ticket) const;
  void keep();
  void care();
  void hangs(uint64_t ticket);
  void admit(const std::shared_ptr<FutureRep>& target, std::vector<Tensor> inputs, Timeout timeout,
             int priority);
  void close();
  void check_ours() const {
    if (fork_generation() != generation) throw_status(forked());
  }

  const BatchFunction function;
  const std::optional<Model> seated;  // its seats are used instead of the function
  const BatchQueueOptions options;
  const batch::RequestRows rows;
  const std::shared_ptr<batch::RequestQueue> queue;
  const uint32_t generation = fork_generation();  // of the maker
  Atomic<int64_t> max_batch;                      // a setting, relaxed: set_limits() writes, submit() reads
  Guarded<Roll, Rank::kBatch> roll;

  static thread_local const Rep* working;  // whose worker this thread is
};

thread_local const BatchQueue::Rep* BatchQueue::Rep::working = nullptr;

// ---- threads

void BatchQueue::Rep::start(std::function<void()> body) {
  Thread thread = take(Thread::start("heddle-batch", std::move(body)));
  roll.lock()->threads.push_back(std::move(thread));
}

void BatchQueue::Rep::keep() {
  {
    auto r = roll.lock();
    if (r->keeping || r->closed) return;
    r->keeping = true;
  }
  start([this] { care(); });
}

RunJobs BatchQueue::Rep::prepare() const {
  BatchFunction call = options.setup ? options.setup() : function;
  if (!call) throw Error(ErrorCode::invalid, "a BatchQueue needs a function, or setup that makes one");
  warm(call);
  return seated ? run_seated(*seated) : run_stacked(std::move(call), rows, options.pad.value_or(0));
}

void BatchQueue::Rep::warm(const BatchFunction& call) const {
  if (options.warm_up.empty()) return;
  std::vector<int64_t> sizes = {1};
  sizes.insert(sizes.end(), options.limits.preferred.begin(), options.limits.preferred.end());
  if (sizes.back() != options.limits.max_batch) sizes.push_back(options.limits.max_batch);
  std::vector<int64_t> lengths = options.buckets;
  if (lengths.empty()) lengths = {0};
  for (const int64_t length : lengths) {
    for (const int64_t size : sizes) {
      std::vector<Tensor> batch;
      for (const Tensor& input : options.warm_up) batch.push_back(resized_rows(input, size, length));
      static_cast<void>(call(batch));
    }
  }
}

void BatchQueue::Rep::work() {
  working = this;
  RunJobs call;
  try {
    call = prepare();
  } catch (...) {  // kept, and given to every request
    const std::string why = "a worker could not start: " + words_of(std::current_exception());
    fail_all(queue->lost_worker(why), failure(ErrorCode::unavailable, why));
    return;
  }
  for (;;) {
    Result<batch::Work> work = queue->take(Deadline::never());
    if (!work.ok()) return;
    fail_all(std::move(work->expired),
             failure(ErrorCode::deadline, "the request was not run before its timeout"));
    if (work->ticket != 0 && !run(work->ticket, to_jobs(work->batch), call)) return;
  }
}

// ---- a batch

bool BatchQueue::Rep::run(uint64_t ticket, Jobs jobs, const RunJobs& call) {
  std::erase_if(jobs, [](const std::unique_ptr<Job>& job) { return !job->target->begin(); });
  if (options.hang_after) {
    Targets targets;
    for (const auto& job : jobs) targets.push_back(job->target);
    roll.lock()->running.emplace(ticket, std::move(targets));
  }
  std::vector<Outcome> all;
  if (!jobs.empty()) all = outcomes(call, jobs, ticket);
  bool failed = false;
  for (const Outcome& outcome : all) failed = failed || outcome.error != nullptr;
  if (const batch::Owed owed = queue->ran(ticket)) answer(all);
  const bool stays = queue->finish(ticket, failed);
  if (options.hang_after) roll.lock()->running.erase(ticket);
  return stays;
}

void BatchQueue::Rep::answer(std::vector<Outcome>& all) {
  for (Outcome& outcome : all) {
    Outcomes answers(outcome.jobs.size());
    if (outcome.error == nullptr) {
      try {
        answers = outcome.scatter();
      } catch (const Error&) {
        outcome.error = std::current_exception();
      }
    }
    for (size_t i = 0; i < outcome.jobs.size(); ++i) {
      const std::exception_ptr& error = outcome.error != nullptr ? outcome.error : answers[i].error;
      if (error != nullptr) {
        outcome.jobs[i]->target->fail(error);
      } else {
        outcome.jobs[i]->give(std::move(answers[i].results));
      }
    }
  }
}

// One call, or more where a failed batch may be run again in halves.
std::vector<BatchQueue::Rep::Outcome> BatchQueue::Rep::outcomes(const RunJobs& call,
                                                                std::span<const std::unique_ptr<Job>> jobs,
                                                                uint64_t ticket) const {
  Outcome outcome{jobs, {}, nullptr};
  try {
    outcome.scatter = call(jobs, [&] { queue->formed(ticket); });
  } catch (...) {  // whatever the function throws is its requests' answer
    outcome.error = std::current_exception();
  }
  std::vector<Outcome> all;
  if (outcome.error == nullptr || !options.retry || jobs.size() == 1 || is_device_lost(outcome.error)) {
    all.push_back(std::move(outcome));
    return all;
  }
  const size_t half = jobs.size() / 2;
  all = outcomes(call, jobs.first(half), ticket);
  for (const Outcome& first : all) {
    if (first.error == nullptr || !is_device_lost(first.error)) continue;
    all.push_back({jobs.subspan(half), {}, first.error});  // nothing runs on it again
    return all;
  }
  std::vector<Outcome> rest = outcomes(call, jobs.subspan(half), ticket);
  for (Outcome& one : rest) all.push_back(std::move(one));
  return all;
}

// ---- the keeper

void BatchQueue::Rep::care() {
  for (;;) {
    batch::Care care = queue->care(Deadline::never());
    fail_all(std::move(care.expired),
             failure(ErrorCode::deadline, "the request was not run before its timeout"));
    for (const uint64_t ticket : care.hung) hangs(ticket);
    if (care.closed) return;
  }
}

void BatchQueue::Rep::hangs(uint64_t ticket) {
  Targets targets;
  {
    auto r = roll.lock();
    const auto found = r->running.find(ticket);
    if (found == r->running.end()) return;
    targets = found->second;
  }
  batch::Hang hang = queue->hang(ticket);
  if (!hang.owed) return;
  const std::string why = queue->health().reason;
  for (const auto& target : targets) target->fail(failure(ErrorCode::unavailable, why));
  fail_all(std::move(hang.owed), failure(ErrorCode::unavailable, why));
  if (hang.replace) start([this] { work(); });
}

// ---- in

void BatchQueue::Rep::admit(const std::shared_ptr<FutureRep>& target, std::vector<Tensor> inputs,
                            Timeout timeout, int priority) {
  const auto [count, length, group] = seated ? describe(inputs, rows, *seated) : describe(inputs, rows);
  const int64_t most = max_batch.load_relaxed();
  Jobs jobs;
  if (count <= most) {
    jobs.push_back(std::make_unique<Job>(Job{target, std::move(inputs), count, length, nullptr, 0}));
  } else {
    const auto parts = batch::RequestRows::parts(count, most);
    const auto whole = std::make_shared<Whole>(parts.size());
    for (const auto& [begin, end] : parts) {
      jobs.push_back(std::make_unique<Job>(
          Job{target, slice_rows(inputs, begin, end), end - begin, length, whole, jobs.size()}));
    }
  }
  std::vector<batch::Request> requests;
  requests.reserve(jobs.size());
  const TimePoint deadline = to_deadline(timeout).when();
  for (const auto& job : jobs) {
    int64_t cost = 0;
    if (options.limits.max_cost != 0) cost = options.cost ? options.cost(job->inputs) : bytes_of(job->inputs);
    requests.push_back({job.get(), group, job->rows, cost, priority, deadline});
  }
  target->ids.resize(jobs.size());
  target->queue = queue;
  const Timeout room = working == this ? Timeout(std::chrono::nanoseconds(0)) : options.full_wait;
  const Status status = queue->submit(requests, target->ids, to_deadline(room));
  check(status);  // throws with the jobs still ours
  for (auto& job : jobs) static_cast<void>(job.release());
}

// A forked child has none of its threads; what waits is the parent's to answer.
void BatchQueue::Rep::close() {
  if (fork_generation() != generation) return;
  fail_all(queue->close(), failure(ErrorCode::unavailable, "the queue was closed before the request ran"));
  std::vector<Thread> threads;
  {
    auto r = roll.lock();
    r->closed = true;
    threads.swap(r->threads);
  }
  for (Thread& thread : threads) thread.join();
  static_cast<void>(queue->drain(Deadline::never()));  // others may give answers yet: a cancel, another close
}

// ---- the public face

BatchQueue::BatchQueue(BatchFunction function, const BatchQueueOptions& options)
    : BatchQueue(std::make_shared<Rep>(std::move(function), std::nullopt, options)) {}

// With pad the queue itself fills rows up, and with setup another function than the model may run them.
BatchQueue::BatchQueue(const Model& model, const BatchQueueOptions& options)
    : BatchQueue(std::make_shared<Rep>(
          [model](std::span<const Tensor> stacked) { return model(stacked); },
          model.batchable() && !options.pad && !options.setup ? std::optional(model) : std::nullopt,
          options)) {
  if (!model.batchable()) {
    throw Error(ErrorCode::unsupported, "the model cannot be batched: " + model.why_not_batchable());
  }
}

BatchQueue::BatchQueue(std::shared_ptr<Rep> rep) : rep_(std::move(rep)) {
  const BatchQueueOptions& options = rep_->options;
  if (!rep_->function && !options.setup) {
    throw Error(ErrorCode::invalid, "a BatchQueue needs a function, or setup that makes one");
  }
  for (int i = 0; i < options.workers; ++i) rep_->start([rep = rep_.get()] { rep->work(); });
  if (options.hang_after) rep_->keep();
}

BatchQueue::~BatchQueue() {
  if (rep_ != nullptr) rep_->close();
}

BatchFuture BatchQueue::submit(std::vector<Tensor> inputs, Timeout timeout, int priority) {
  rep_->check_ours();
  const auto target = std::make_shared<FutureRep>();
  if (timeout) rep_->keep();
  rep_->admit(target, std::move(inputs), timeout, priority);
  return Internals::make_future(target);
}

BatchMetrics BatchQueue::metrics() const { return to_public(rep_->queue->metrics()); }

BatchHealth BatchQueue::health() const { return to_public(rep_->queue->health()); }

void BatchQueue::set_limits(const BatchLimits& limits) {
  rep_->queue->set_limits(to_batch(limits));
  rep_->queue->set_capacity(limits.capacity);
  rep_->max_batch.store_relaxed(limits.max_batch);
}

void BatchQueue::drain(Timeout timeout) { check(rep_->queue->drain(to_deadline(timeout))); }

void BatchQueue::close() { rep_->close(); }

}  // namespace heddle
