#include "api/batch_future.h"

#include "api/batch_rows.h"

namespace heddle {

bool FutureRep::begin() {
  auto state = state_.lock();
  state->running = true;
  return !state->over;
}

bool FutureRep::answered() const {
  check_ours();
  return state_.lock()->over;
}

bool FutureRep::answer(std::vector<Tensor> results, const std::exception_ptr& error) {
  if (!is_ours()) return false;
  std::vector<std::function<void(const BatchFuture&)>> callbacks;
  {
    auto state = state_.lock();
    if (state->over) return false;
    state->over = true;
    state->results = std::move(results);
    state->error = error;
    callbacks.swap(state->callbacks);
    state.notify_all();
  }
  if (callbacks.empty()) return true;
  const BatchFuture future = Internals::make_future(shared_from_this());
  for (const auto& callback : callbacks) callback(future);
  return true;
}

void FutureRep::give(std::vector<Tensor> results) { answer(std::move(results), nullptr); }
void FutureRep::fail(const std::exception_ptr& error) { answer({}, error); }

bool FutureRep::wait_until(Deadline deadline) const {
  check_ours();
  auto state = state_.lock();
  if (state->over) return true;
  return state.wait_until(deadline, [&] { return state->over; });
}

std::vector<Tensor> FutureRep::get() const {
  while (!wait_until(Deadline::never())) {
  }
  auto state = state_.lock();
  if (state->error != nullptr) std::rethrow_exception(state->error);
  return state->results;
}

void FutureRep::then(std::function<void(const BatchFuture&)> callback) {
  check_ours();
  {
    auto state = state_.lock();
    if (!state->over) {
      state->callbacks.push_back(std::move(callback));
      return;
    }
  }
  callback(Internals::make_future(shared_from_this()));
}

bool FutureRep::cancel() {
  check_ours();
  {
    auto state = state_.lock();
    if (state->over || state->running) return false;
  }
  const std::shared_ptr<batch::RequestQueue> owner = queue.lock();
  if (owner == nullptr) return false;
  std::vector<batch::Owed> owed;
  Jobs back;
  for (const uint64_t id : ids) {
    batch::Owed part = owner->cancel(id);
    if (!part) continue;
    back.emplace_back(static_cast<Job*>(part.payloads().front()));
    owed.push_back(std::move(part));
  }
  if (back.empty()) return false;  // workers have it
  // False: another part of it has failed meanwhile, and that is the answer.
  return answer(
      {}, std::make_exception_ptr(Error(ErrorCode::cancelled, "the request was cancelled before it ran")));
}

void Job::give(std::vector<Tensor> results) {
  if (whole == nullptr) {
    target->give(std::move(results));
    return;
  }
  whole->results[number] = std::move(results);
  if (whole->missing.add_acq_rel(-1) != 1) return;
  try {
    target->give(join_rows(whole->results));
  } catch (const Error&) {  // results that cannot be joined: its own answer
    target->fail(std::current_exception());
  }
}

Jobs to_jobs(const std::vector<void*>& payloads) {
  Jobs jobs;
  jobs.reserve(payloads.size());
  for (void* payload : payloads) jobs.emplace_back(static_cast<Job*>(payload));
  return jobs;
}

bool BatchFuture::ready() const { return rep_->answered(); }
void BatchFuture::wait() const { static_cast<void>(rep_->wait_until(Deadline::never())); }
bool BatchFuture::wait_for(std::chrono::nanoseconds time) const {
  return rep_->wait_until(Deadline::in(time));
}
std::vector<Tensor> BatchFuture::get() const { return rep_->get(); }
bool BatchFuture::cancel() const { return rep_->cancel(); }
void BatchFuture::then(std::function<void(const BatchFuture&)> callback) const {
  rep_->then(std::move(callback));
}

}  // namespace heddle
