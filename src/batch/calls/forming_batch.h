// forming_batch.h: a batch from its first caller to its last: its slot, the callers' seats, the result.
//
//   What       Callers take seats (under the coalescer's lock), write their rows into the slot in parallel,
//              and park. One of them runs the batch and publishes the result, which lies in the slot, too;
//              each copies its own rows out.
//   States     open -> taken (closed to further callers, a leader is named) -> done (result published)
//   Threads    The plain members are guarded by the coalescer's lock until the batch is taken, and its
//              leader's from then on; a seat's `gone` and `leader` stay under the lock. The result is written
//              before the seats are told, and read by members that were told.
//   Blocks     Seat::wait(), until its deadline. Nothing else.
//   Lifetime   Shared by its callers; one that leaves early abandons its rows.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
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

struct Member {
  int64_t first = 0, rows = 0;   // its rows in the batch
  std::vector<int64_t> lengths;  // per ragged symbol: its own
  bool gone = false;             // left before the end: cannot lead
  // Set by the member when it needs no telling any more, and by the thread that tells it. The second of them
  // finds it set (acq_rel) and tells the next one. See FormingBatch::tell_next().
  Atomic<bool> met{false};
  Seat seat;
};

struct FormingBatch {
  // Without a slot it is for one caller, which runs with its own memory.
  FormingBatch(int64_t rows_max, Ref<runtime::Slot> memory)
      : capacity(rows_max),
        slot(std::move(memory)),
        alone(slot == nullptr),
        members(alone ? 1 : static_cast<size_t>(rows_max)) {}

  const int64_t capacity;  // rows that the slot holds
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
  bool awaits = false;   // it was opened while callers were expected back
  bool taken = false, done = false;
  size_t leader = 0;  // once taken
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
};

}  // namespace heddle::batch
