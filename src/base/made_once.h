// made_once.h: a value of the process, made by its first use without a lock.
//
//   What       get(make) gives the one T. Threads that ask first at the same time each make one; the first to
//              be through publishes its own, and the others' are deleted. So making it changes nothing else.
//   Why        A function's static object is made under a lock of the C++ library's. A child that is forked
//              while another thread makes it would wait for that thread for ever.
//   Use        `static constinit MadeOnce<T> name;`. For T that can be made at compile time: constinit alone.
//   Ordering   What make() wrote is visible to whoever gets the T.
//   Threads    Any.
//   Blocks     As long as make().
//   Seams      None: whoever makes it, it is the same, so no seed decides it.
//   Lifetime   T: the process; never destroyed, since threads outlive main().
#pragma once

#include <atomic>
#include <memory>

namespace heddle {

template <class T>
class MadeOnce {
 public:
  constexpr MadeOnce() = default;
  MadeOnce(const MadeOnce&) = delete;
  MadeOnce& operator=(const MadeOnce&) = delete;

  template <class Make>
  T& get(Make make) {
    T* known = made_.load(std::memory_order_acquire);  // pairs with the exchange
    if (known != nullptr) [[likely]]
      return *known;
    std::unique_ptr<T> mine(new T(make()));
    const bool is_first = made_.compare_exchange_strong(known, mine.get(), std::memory_order_acq_rel,
                                                        std::memory_order_acquire);
    return is_first ? *mine.release() : *known;
  }
  T& get() {
    return get([] { return T(); });
  }

 private:
  std::atomic<T*> made_{nullptr};  // set once, by whoever is first
};

}  // namespace heddle
