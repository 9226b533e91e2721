// forming_batch.h: a batch from its first caller to its last: its slot, the callers' seats, the result.
//
//   What       Callers take seats (under the coalescer's lock), write their rows into the slot in parallel,
//              and park. One of them runs the batch and publishes the result, which lies in the slot, too;
//              each copies its own rows out. A member may be absent: no thread waits in its seat, its answer
//              is given to a function. Where all members are absent, a thread of leaders.h does all this for
//              them.
//   States     open -> taken (closed to further callers, a leader is named) -> done (result published)
//   Threads    The plain members are guarded by the coalescer's lock until the batch is taken, and its
//              leader's from then on; a seat's `gone` and `leader` stay under the lock. The result is written
//              before the seats are told, and read by members that were told.
//   Blocks     Seat::wait(), until its deadline. Nothing else.
//   Lifetime   Shared by its callers; one that leaves early abandons its rows.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/stop_callback.h"
#include "base/sync.h"
#include "batch/calls/row_layout.h"
#include "device/row_faults.h"
#include "runtime/runtime.h"

namespace heddle::batch {

// Where one caller waits. Notes are kept until it looks; the most important one comes first.
class Seat {
 public:
  enum class Note : uint8_t { none, ask, cancelled, done, lead };
  void tell(Note note) {
    state_.lock()->told[static_cast<size_t>(note)] = true;
    state_.notify_one();
  }
  Note wait(Deadline deadline) {  // none: the deadline passed
    auto state = state_.lock();
    state.wait_until(deadline, [&] { return state->next() != Note::none; });
    const Note note = state->next();
    state->told[static_cast<size_t>(note)] = false;
    return note;
  }

 private:
  struct State {
    bool told[5] = {};
    Note next() const {
      for (size_t i = 4; i > 0; --i) {
        if (told[i]) return static_cast<Note>(i);
      }
      return Note::none;
    }
  };
  Guarded<State, Rank::kBatch> state_;
};

// What stands in for the thread of a member that has none. Only `then` changes once the seat is taken: the
// thread that answers takes it.
struct Absent {
  std::vector<device::View> inputs;
  Ref<const void> holds;  // owns what `inputs` show, as far as it has an owner; until the batch ends
  Ref<const void> keep;   // as runtime::Call::keep
  std::function<void(Result<std::vector<device::View>>)> then;  // called once, with no lock held
  std::optional<StopCallback<std::function<void()>>> on_cancel;
};

struct Member {
  int64_t first = 0, rows = 0;   // its rows in the batch
  std::vector<int64_t> lengths;  // per ragged symbol: its own
  Deadline deadline = Deadline::never();
  std::unique_ptr<Absent> absent;  // null: a thread waits in the seat
  bool gone = false;               // left before the end: cannot lead
  // Set by the member when it needs no telling any more, and by the thread that tells it. The second of them
  // finds it set (acq_rel) and tells the next one. See FormingBatch::tell_next().
  Atomic<bool> met{false};
  Seat seat;
};

struct FormingBatch {
  static constexpr size_t kNoSeat = ~size_t{0};
  // Without a slot it is for one caller, which runs with its own memory.
  FormingBatch(const RowLayout& lies, int64_t rows_max, Ref<runtime::Slot> memory)
      : layout(lies),
        capacity(rows_max),
        slot(std::move(memory)),
        alone(slot == nullptr),
        members(alone ? 1 : static_cast<size_t>(rows_max)) {}

  const RowLayout& layout;  // the coalescer's
  const int64_t capacity;   // rows that the slot holds
  const Ref<runtime::Slot> slot;
  const bool alone;

  uint64_t id = 0;
  std::vector<ir::Extents> row_extents;  // what its rows look like in the slot
  std::vector<int64_t> longest;          // per ragged symbol
  TimePoint arrived;                     // of the first caller
  int64_t rows = 0;
  int64_t run_rows = 0;  // what it is run with: `rows`, or the next number worth a program
  size_t seats = 0;      // taken so far, members[0] first
  size_t copying = 0;    // of those, still writing their rows
  size_t living = 0;     // of those, not gone
  size_t absents = 0;    // of those taken, without a thread
  bool awaits = false;   // it was opened while callers were expected back
  bool taken = false, done = false;
  size_t leader = 0;  // once taken; kNoSeat: a thread that is no member
  std::vector<Member> members;
  Atomic<size_t> untold{0};  // seats from here on have not been told the result

  // The run, while a leader waits for it; the next one goes on if that one leaves.
  std::vector<device::View> inputs;
  std::optional<runtime::InFlight> in_flight;
  TimePoint began;

  Status failure;           // the result
  bool each_alone = false;  // the failure may be that of the padded whole only
  std::vector<device::View> outputs;
  Ref<device::RowFaults> faults;

  // The result is passed from one member to the next: if the leader woke all of them at once, they would take
  // the processors from the batches that run. Called once by the leader and by each member that was told.
  void tell_next() {
    for (;;) {
      const size_t seat = untold.add_acq_rel(1);
      if (seat >= seats) return;
      if (members[seat].absent != nullptr) continue;           // leaders answer it
      if (members[seat].met.exchange_acq_rel(true)) continue;  // it has the result, or left
      members[seat].seat.tell(Seat::Note::done);
      return;
    }
  }

  size_t first_living() const {
    size_t seat = 0;
    while (seat < seats && members[seat].gone) ++seat;
    return seat;
  }
  // Who leads: the first member with a thread, else the first.
  size_t best_leader() const {
    for (size_t seat = 0; absents < seats && seat < seats; ++seat) {
      if (!members[seat].gone && members[seat].absent == nullptr) return seat;
    }
    return first_living();
  }
};

}  // namespace heddle::batch
