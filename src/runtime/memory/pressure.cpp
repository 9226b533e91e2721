#include "runtime/memory/pressure.h"

#include <memory>
#include <utility>

#include "base/atomic.h"

namespace heddle::runtime {

namespace {

// The callbacks that this thread is inside, the innermost first.
struct InCallbacks {
  explicit InCallbacks(const Pressure* whose) : of(whose), outer(innermost) { innermost = this; }
  ~InCallbacks() { innermost = outer; }
  InCallbacks(const InCallbacks&) = delete;
  InCallbacks& operator=(const InCallbacks&) = delete;
  static bool are_of(const Pressure* pressure) {
    for (const InCallbacks* each = innermost; each != nullptr; each = each->outer) {
      if (each->of == pressure) return true;
    }
    return false;
  }
  const Pressure* const of;
  const InCallbacks* const outer;
  static thread_local const InCallbacks* innermost;
};
thread_local const InCallbacks* InCallbacks::innermost = nullptr;

}  // namespace

class Pressure::Caller {
 public:
  explicit Caller(Pressure& of) : of_(of) {
    auto callers = of.callers_.lock();
    callers->inside.insert(number_ = callers->next++);
  }
  ~Caller() {
    auto callers = of_.callers_.lock();
    callers->inside.erase(number_);
    callers.notify_all();
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

 private:
  Pressure& of_;
  uint64_t number_ = 0;
};

void Pressure::add(Callback callback) {
  auto shared = std::make_shared<const Callback>(std::move(callback));
  callbacks_.lock()->push_back(std::move(shared));
}

bool Pressure::inside_callback() { return InCallbacks::innermost != nullptr; }

// Not for what a callback asks for itself: it would be called again, and again, until the stack ends.
bool Pressure::call(uint64_t bytes_asked) {
  if (InCallbacks::are_of(this)) return false;
  const std::vector<Ref<const Callback>> callbacks = *callbacks_.lock();
  const Caller counted(*this);
  const InCallbacks inside(this);
  const NoLocksHeld checked;
  static_cast<void>(checked);
  for (const Ref<const Callback>& callback : callbacks) (*callback)(bytes_asked);
  calls_.add_relaxed(callbacks.size());
  return !callbacks.empty();
}

void Pressure::wait_for_others() {
  if (inside_callback()) return;
  auto callers = callers_.lock();
  static_cast<void>(callers.wait_until(Deadline::in(kLongestWait), [&callers, end = callers->next] {
    return callers->inside.empty() || *callers->inside.begin() >= end;
  }));
}

}  // namespace heddle::runtime
