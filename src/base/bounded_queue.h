// bounded_queue.h: a first-in first-out queue that is never longer than it was made to be.
//
//   What       Any number of producers and consumers hand values over. An item goes to exactly one consumer.
//   States     open -> closed (close(), for good). Open and full, producers wait or are refused; open and
//              empty, consumers wait. Closed, every push is refused with `unavailable`, and pops give what is
//              left, then `unavailable`.
//   Ordering   Items leave in the order in which their pushes took the lock. What a producer did before its
//              push is visible to the consumer of the item.
//   Threads    Any, all calls.
//   Blocks     push() and pop() until their deadline (one that has passed: not at all). try_push(),
//              try_pop(), drain() and close() never.
//   Lifetime   A refused item stays with the caller, unmoved. The queue outlives every call; close() it and
//              join whoever waits before it is destroyed. Items left in it are destroyed with it, or taken by
//              drain().
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/sync.h"

namespace heddle {

template <class T, Rank R = Rank::kHelpers>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : state_(capacity) {}

  Status try_push(T&& item) {
    return put(std::move(item), [](auto&) { return Status(); });
  }

  Status push(T&& item, Deadline deadline) {
    return put(std::move(item), [&](auto& state) {
      if (state->closed || !state->full()) return Status();
      ++state->waiting.producers;
      const bool woken = state.wait_until(deadline, [&] { return state->closed || !state->full(); });
      --state->waiting.producers;
      if (woken) return Status();
      return Status::deadline("the queue held ", state->size, " of ", state->ring.size(),
                              " items until the deadline");
    });
  }

  std::optional<T> try_pop() {
    std::optional<T> out;
    Waiting others;
    {
      auto state = state_.lock();
      if (state->size == 0) return std::nullopt;
      out.emplace(state->take_first());
      others = state->waiting;
    }
    wake(others.producers, others.consumers);
    return out;
  }

  Result<T> pop(Deadline deadline) {
    std::optional<T> out;
    Waiting others;
    {
      auto state = state_.lock();
      if (state->size == 0 && !state->closed) {
        ++state->waiting.consumers;
        const bool woken = state.wait_until(deadline, [&] { return state->closed || state->size != 0; });
        --state->waiting.consumers;
        if (!woken) return Status::deadline("the queue stayed empty until the deadline");
      }
      if (state->size == 0) return Status::unavailable("the queue is closed and empty");
      out.emplace(state->take_first());
      others = state->waiting;
    }
    wake(others.producers, others.consumers);
    return std::move(*out);
  }

  void close() {
    state_.lock()->closed = true;
    state_.notify_all();
  }

  // Everything that is in the queue now, in order. Works open and closed.
  std::vector<T> drain() {
    std::vector<T> out;
    {
      auto state = state_.lock();
      out.reserve(state->size);
      while (state->size != 0) out.push_back(state->take_first());
    }
    state_.notify_all();
    return out;
  }

  size_t size() const { return state_.lock()->size; }
  size_t capacity() const { return state_.lock()->ring.size(); }

 private:
  struct Waiting {  // in a wait, or woken and not yet running
    size_t producers = 0, consumers = 0;
  };
  struct State {
    explicit State(size_t capacity) : ring(capacity) {}
    bool full() const { return size == ring.size(); }
    T take_first() {
      T out = std::move(*ring[first]);
      ring[first].reset();
      first = first + 1 == ring.size() ? 0 : first + 1;
      --size;
      return out;
    }
    std::vector<std::optional<T>> ring;  // `size` items from `first` on, around the end
    size_t first = 0;
    size_t size = 0;
    bool closed = false;
    Waiting waiting;
  };
  using Shared = Guarded<State, R>;

  // Producers and consumers share one condition variable: one wake-up is enough only if no thread of the
  // caller's own kind can swallow it.
  void wake(size_t wanted, size_t own_kind) {
    if (wanted == 0) return;
    if (own_kind == 0) {
      state_.notify_one();
    } else {
      state_.notify_all();
    }
  }

  template <class Wait>
  Status put(T&& item, Wait wait) {
    Waiting others;
    {
      auto state = state_.lock();
      HEDDLE_TRY(wait(state));
      if (state->closed) return Status::unavailable("the queue is closed");
      if (state->full()) {
        return Status::exhausted("the queue holds ", state->size, " of ", state->ring.size(), " items");
      }
      const size_t last = state->first + state->size;
      state->ring[last < state->ring.size() ? last : last - state->ring.size()].emplace(std::move(item));
      ++state->size;
      others = state->waiting;
    }
    wake(others.consumers, others.producers);  // after the lock: the woken thread need not wait for it
    return {};
  }

  mutable Shared state_;
};

}  // namespace heddle
