// forming_batch.h: a batch from its first caller to its last: its slot, the callers' seats, the result.
//
//   What       Callers take seats (open_seats.h, or under the coalescer's lock), write their rows into the
//              slot in parallel, and park. One of them runs the batch, and it or who sees its end first
//              (run_end.h) publishes the result, which lies in the slot, too; each copies its own rows out.
//              A member may be absent: no thread waits in its seat, its answer is given to a function. Where
//              all members are absent, a thread of leaders.h does all this for them.
//   States     open -> taken (closed to further callers) -> written (all rows are there, a leader is named)
//              -> done (result published)
//   Threads    The plain members are guarded by the coalescer's lock until the batch is written, its leader's
//              from then on, and of who claims the end once that is shown; a seat's `gone` and `leader` stay
//              under the lock until it is done. A Member's rows, lengths and deadline are its caller's until
//              the batch is written. The result is written before the seats are told, and read by members
//              that were told, or see that it is answered.
//   Blocks     Seat::wait(), until its deadline. Nothing else.
//   Lifetime   Shared by its callers; one that leaves early abandons its rows. For members without a thread
//              its desk (coalescer.h) keeps it until it is written, and then who leads it.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/parker.h"
#include "base/stop_callback.h"
#include "batch/calls/pace.h"
#include "batch/calls/row_layout.h"
#include "batch/calls/run_end.h"
#include "device/row_faults.h"
#include "runtime/runtime.h"

namespace heddle::batch {

// Where one caller waits. Notes are kept until it looks; the most important one comes first.
class Seat {
 public:
  enum class Note : uint8_t { none, ask, cancelled, done, lead };
  void tell(Note note) { parker_.tell(bit(note)); }
  bool take(Note note) { return parker_.take(bit(note)); }  // true: it was told, and not taken
  void renew() { parker_.take(~Parker::kAsleep); }          // nobody waits, and nobody tells
  bool is_told() const { return parker_.is_told(); }
  bool is_asleep() const { return parker_.is_asleep(); }  // or was, a moment ago
  Note wait(Deadline deadline) {                          // none: the deadline passed
    const uint32_t told = parker_.wait(deadline);
    for (const Note note : {Note::lead, Note::done, Note::cancelled, Note::ask}) {
      if ((told & bit(note)) == 0) continue;
      take(note);
      return note;
    }
    return Note::none;
  }

 private:
  static constexpr uint32_t bit(Note note) { return uint32_t{1} << static_cast<uint32_t>(note); }
  Parker parker_;
};

// What stands in for the thread of a member that has none. Who answers it drops it, unless it left before the
// end: a thread that submits again then finds memory of its own, and frees none of another's.
class Absent {
 public:
  using Views = std::vector<device::View>;
  virtual ~Absent() = default;
  virtual std::span<const device::View> inputs() const = 0;  // the same for as long as it lives, and owned
  virtual Ref<const void> keep() const { return nullptr; }   // as runtime::Call::keep
  virtual void answer(Result<Views> result) = 0;             // called once, with no lock held; throws nothing
};

// On cache lines of its own: its caller, and whoever tells it, write it while those beside it do the same.
struct alignas(64) Member {
  int64_t first = 0, rows = 0;   // its rows in the batch
  std::vector<int64_t> lengths;  // per ragged symbol: its own
  Deadline deadline = Deadline::never();
  std::unique_ptr<Absent> absent;  // where no thread waits in the seat
  // Its cancellation, until the batch ends: it may come, and be answered, before this is there.
  using OnCancel = StopCallback<std::function<void()>>;
  std::unique_ptr<OnCancel> on_cancel;  // null: nobody can
  Pace* pace = nullptr;                 // at which its thread is told
  bool gone = false;                    // left before the end: cannot lead
  // Set by the member when it needs no telling any more, and by the thread that tells it. The second of them
  // finds it set (acq_rel) and tells the next one. See FormingBatch::tell_next().
  Atomic<bool> met{false};
  // Whether no thread waits in the seat. Who sits down says so and then takes what was told; who tells a seat
  // reads this afterwards; all seq_cst: one of them learns that somebody has to act for it.
  Atomic<bool> is_absent{false};
  Seat seat;

  void renew() {
    absent.reset();
    on_cancel.reset();
    gone = false;
    met.store_relaxed(false);
    is_absent.store_relaxed(false);
    seat.renew();
  }

  // False: no thread waits there. What was told is the caller's to do.
  bool tell(Seat::Note note) {
    seat.tell(note);
    const bool is_empty = is_absent.load_seq_cst();
    seam::did("seat.look_whether_empty", is_empty);
    return !is_empty || !seat.take(note);
  }
  // What was told before is the caller's to take, and to do.
  void leave_empty() {
    is_absent.store_seq_cst(true);
    seam::did("seat.leave_empty");
  }
};

struct FormingBatch {
  static constexpr size_t kNoSeat = ~size_t{0};
  static constexpr int kTellsEach = 4;
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

  std::vector<ir::Extents> row_extents;  // what its rows look like in the slot
  std::vector<Member> members;
  // What is above, callers read while those under the lock write what follows: it begins a cache line, as do
  // the words that each caller changes.
  alignas(64) uint64_t id = 0;
  TimePoint arrived;                  // of the first caller
  int64_t rows = 0, living_rows = 0;  // taken so far; of members that are not gone
  int64_t run_rows = 0;               // what it is run with: `rows`, or as many as the layout runs
  size_t seats = 0;                   // taken so far, members[0] first
  size_t living = 0;                  // of those, not gone
  bool awaits = false;                // it was opened while callers were expected back
  bool taken = false, done = false;
  bool refused = false;     // close() answered it before it ran: its calls are not counted
  size_t leader = kNoSeat;  // once written; kNoSeat: a thread that is no member. Once done: who published
  size_t desk = kNoSeat;    // where callers without the lock find it
  // Seats of a batch that is taken, less those that are written: below zero until it is taken. Who brings it
  // to zero is the last one (acq_rel), and sees what all have written. Each that is written and has no thread
  // adds kAbsent: a member changes one shared word, not two.
  static constexpr int64_t kAbsent = int64_t{1} << 32;
  alignas(64) Atomic<int64_t> unwritten{0};
  // What a member says of itself before it counts as written: it led the batch before. 0: none did.
  Atomic<size_t> led_before{0};  // its seat, and 1
  Atomic<Pace*> pace{nullptr};   // of the members, or of some; null: none is paced
  // The result is there. Set with release by who publishes it, while it decides what runs next: those who
  // look need not wait for that, nor to be told.
  alignas(64) Atomic<bool> answered{false};
  alignas(64) Atomic<size_t> untold{0};  // seats from here on have not been told the result
  // Seats from here on have not been looked at for members without a thread that await their answer.
  alignas(64) Atomic<size_t> next_absent{0};

  // The run, while a leader waits for it; the next one goes on if that one leaves. Its inputs lie in the
  // slot, and stay for the next batch here.
  alignas(64) std::vector<device::View> inputs;
  std::optional<runtime::InFlight> in_flight;  // once its end is shown: of who claimed that
  RunEnd end;
  TimePoint began;

  // By who publishes: the pace of its members, or of some. Null: they are told at once.
  Pace* told_at = nullptr;
  Status failure;           // the result
  bool each_alone = false;  // the failure may be that of the padded whole only
  std::vector<device::View> outputs;
  Ref<device::RowFaults> faults;

  // As it was made, less the kind of its rows, which stays. Nobody holds it.
  void renew() {
    for (size_t seat = 0; seat < seats; ++seat) members[seat].renew();
    id = 0;
    arrived = began = {};
    rows = living_rows = run_rows = 0;
    seats = living = 0;
    awaits = taken = done = refused = each_alone = false;
    leader = desk = kNoSeat;
    unwritten.store_relaxed(0);
    answered.store_relaxed(false);
    untold.store_relaxed(0);
    next_absent.store_relaxed(0);
    led_before.store_relaxed(0);
    pace.store_relaxed(nullptr);
    in_flight.reset();
    end.renew();
    told_at = nullptr;
    failure = {};
    outputs.clear();
    faults.reset();
  }

  void show_answer() { answered.store_release(true); }
  bool is_answered() const { return answered.load_acquire(); }
  // The next member that neither has the result nor has left is told that it is there, and returned; null:
  // there is none. A batch that is refused may have seats whose callers still write them.
  const Member* tell_one() {
    for (;;) {
      const size_t seat = untold.add_acq_rel(1);
      if (seat >= seats) return nullptr;
      Member& member = members[seat];
      if (member.is_absent.load_acquire()) continue;    // leaders answer it
      if (member.met.exchange_acq_rel(true)) continue;  // it has the result, or left
      seam::did("batch.tell", static_cast<int64_t>(seat));
      if (member.tell(Seat::Note::done)) return &member;
    }
  }
  // The result is passed on by who has it, to a few each: if the leader woke all of them, the last would wait
  // for its many system calls, and if each woke one, for as many hand-overs as there are members. Called
  // once by the leader and by each member that was told.
  void tell_next() {
    for (int told = 0; told < kTellsEach; ++told) {
      if (tell_one() == nullptr) return;
    }
  }
  // The seats of a batch that nobody joins any more are written.
  bool is_written_when_taken() {
    const auto all = static_cast<int64_t>(seats);
    const bool written = is_zero(unwritten.add_acq_rel(all) + all);
    seam::did("batch.expect_rows", written);
    return written;
  }
  bool is_last_to_write(bool is_absent) {
    const int64_t mine = (is_absent ? kAbsent : 0) - 1;
    const bool last = is_zero(unwritten.add_acq_rel(mine) + mine);
    seam::did("batch.write", last);
    return last;
  }

  // Once all seats are written.
  bool has_absents() const { return absents() != 0; }
  bool has_threads() const { return absents() < seats; }

  // Of the seats from `first` up to `last` one has a member without a thread that did not leave. Once done.
  bool awaits_answers(size_t first, size_t last) const {
    const auto at = [&](size_t seat) { return members.begin() + static_cast<ptrdiff_t>(seat); };
    return has_absents() && std::any_of(at(first), at(last), [](const Member& each) {
             return each.is_absent.load_relaxed() && !each.gone;
           });
  }

  // Who led the batch before and is awake leads again: what it writes lies in its caches, and moving that
  // to another core takes longer than to tell it. kNoSeat: nobody.
  size_t leader_of_before() const {
    const size_t seat = led_before.load_relaxed() - 1;
    if (seat >= seats || members[seat].gone || members[seat].is_absent.load_relaxed()) return kNoSeat;
    return members[seat].seat.is_asleep() ? kNoSeat : seat;
  }
  size_t first_living() const {
    size_t seat = 0;
    while (seat < seats && members[seat].gone) ++seat;
    return seat;
  }
  // Who leads: the first member with a thread, else the first.
  size_t best_leader() const {
    for (size_t seat = 0; has_threads() && seat < seats; ++seat) {
      if (!members[seat].gone && !members[seat].is_absent.load_relaxed()) return seat;
    }
    return first_living();
  }

  // Its inputs are those of the last run here: equal rows, as many. Zeros are written behind those that came.
  bool stage_again() const {
    if (layout.ragged() || inputs.empty() || inputs.front().extents[0] != run_rows) return false;
    for (const device::View& view : inputs) {
      const uint64_t row = view.bytes() / static_cast<uint64_t>(run_rows),
                     used = row * static_cast<uint64_t>(rows);
      std::memset(view.host() + used, 0, view.bytes() - used);
    }
    return true;
  }

 private:
  static bool is_zero(int64_t unwritten) { return static_cast<uint32_t>(unwritten) == 0; }
  // Also of a batch that was never taken: what is below zero is less than half of kAbsent.
  size_t absents() const { return static_cast<size_t>((unwritten.load_relaxed() + kAbsent / 2) / kAbsent); }
};

}  // namespace heddle::batch
