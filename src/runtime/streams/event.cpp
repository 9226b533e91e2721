#include "runtime/streams/event.h"

#include "base/fork.h"

namespace heddle::runtime {

bool Event::query() const {
  const auto over = [&] { return point_.done() || point_.timeline->failed(); };
  if (over()) return true;
  point_.timeline->want(point_.value);
  if (point_.timeline->is_ours()) point_.timeline->look();
  return over();
}

Status Event::wait(Deadline deadline) const {
  if (!recorded()) return {};
  return point_.timeline->wait(point_.value, deadline);
}

Result<Duration> Event::elapsed(const Event& start, const Event& end) {
  for (const Event* event : {&start, &end}) {
    const std::string_view which = event == &start ? "start" : "end";
    if (!event->timed()) {
      return Status::invalid("the ", which, " event has no time; record it with timing enabled");
    }
    if (!event->point_.timeline->is_ours()) return forked();
    if (!event->query())
      return Status::unavailable("the ", which, " event is not over yet; wait for it first");
    if (!event->point_.done()) return event->point_.timeline->failure();
  }
  // A stamp that was registered while its value came may be filled just after it, which takes a lock's time.
  for (const Event* event : {&start, &end}) {
    while (!event->stamp_->filled()) give_way();
  }
  return end.stamp_->when() - start.stamp_->when();
}

}  // namespace heddle::runtime
