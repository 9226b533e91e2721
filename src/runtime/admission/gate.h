// gate.h: counts the calls inside, and shuts.
//
//   What       Calls pass through enter() and leave(). close() refuses later calls; wait_empty() waits
//              for those inside.
//   States     open -> closed. It never opens again.
//   Invariant  After close() and an ok wait_empty() no call is inside, for good; what calls did is visible to
//              the waiter.
//   Threads    Any. A thread inside may close(); only wait_empty() there would wait for itself.
//   Blocks     wait_empty(), until its deadline. Nothing else: enter() and leave() are one atomic operation
//              each until it closes.
#pragma once

#include <cstdint>
#include <utility>

#include "base/atomic.h"
#include "base/status.h"
#include "base/sync.h"

namespace heddle::runtime {

class Gate {
 public:
  class Pass {  // inside, as long as it lives; false when the gate was closed
   public:
    Pass() = default;
    explicit Pass(Gate& gate) : gate_(gate.enter() ? &gate : nullptr) {}
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Pass& operator=(Pass&&) = delete;
    ~Pass() {
      if (gate_ != nullptr) gate_->leave();
    }
    explicit operator bool() const { return gate_ != nullptr; }

   private:
    Gate* gate_ = nullptr;
  };

  bool closed() const {  // pairs with close(), see OwnerWords
    const bool closed = (word_.load_seq_cst() & kClosed) != 0;
    seam::did("gate.look_closed", closed);
    return closed;
  }
  uint64_t inside() const { return word_.load_relaxed() & ~kClosed; }
  void close() {
    word_.or_seq_cst(kClosed);
    seam::did("gate.close");
  }
  Status wait_empty(Deadline deadline);

 private:
  static constexpr uint64_t kClosed = uint64_t{1} << 63;
  bool enter();
  void leave();

  struct Nothing {};
  // Low bits: the calls inside. kClosed is set once. Changes are acq_rel, so that who closes it sees the work
  // of calls that have left; of a closed gate the lock orders that, and the last to leave wakes the waiters.
  Atomic<uint64_t> word_{0};
  Guarded<Nothing, Rank::kModel> emptied_;
};

}  // namespace heddle::runtime
