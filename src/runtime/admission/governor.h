// governor.h: how many submissions a device holds at once, and whose turn is next. One per device and
// process.
//
//   What       enter() gives a Permit, which is a lane's number. When all are out, callers park; a returned
//              permit is handed over at once: round robin over models (the one served longest ago), first
//              come first served within a model. enter_copy() gives a Permit without a lane, to work that
//              needs none: as many as are asked for, except during an exclusive hold.
//   Lone       try_enter_lone() gives a Permit to a call that wants a lane now or not at all. A model that
//              closes waits for these by await_no_lone(): they have passed no gate.
//   Invariant  At most limit() permits are out. A permit has one owner. Parked callers are not
//              overtaken by later ones.
//   Fairness   Each other waiting model can overtake a model's first parked caller at most once, and once
//              more for each call of the model that had left its lane, and not yet counted as served, when
//              that caller parked.
//   Exclusive  exclusive() waits until no Permit is out and gives none until the hold ends: for libraries
//              that use the device without us. From the moment that it collects lanes, copies park, too, so
//              that a stream of copies cannot keep a hold away. Only the thread that holds the device gets
//              Permits for copies. Parked calls and copies run between two exclusive holds.
//   Held back  Permits may be with submissions that their streams hold back (stream.h). Who parks for a lane,
//              or for the device, has them sent.
//   Aside      A caller that owns a Turn passes DuringHold::step_aside, since the holder may wait for that
//              Turn. If a hold is on, or begins while the caller is parked, the caller gets an empty Permit,
//              drops the Turn and enters again without it.
//   Threads    Any. The fast path is one compare-and-swap on the lane's word (owner_words.h) and takes no
//              lock.
//   Blocks     enter(), enter_copy(), exclusive() and await_no_lone(), until their deadline. A thread that
//              holds the device exclusively gets `invalid` from enter() and exclusive().
//   Lifetime   Outlives its permits and holds: every Runtime keeps it by Ref, and drains its submissions
//              before it lets go.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/held_back.h"
#include "runtime/admission/owner_words.h"
#include "runtime/admission/parked.h"
#include "runtime/ids.h"

namespace heddle::runtime {

class Governor;

enum class DuringHold : uint8_t { wait, step_aside };

class Permit {
 public:
  Permit() = default;
  Permit(Permit&& other) noexcept : governor_(std::exchange(other.governor_, nullptr)), lane_(other.lane_) {}
  Permit& operator=(Permit&& other) noexcept {
    std::swap(governor_, other.governor_);
    std::swap(lane_, other.lane_);
    return *this;
  }
  ~Permit();
  int lane() const { return lane_; }  // not of a copy's: it has none
  void decline();                     // gives it back unused: it does not count as a call
  explicit operator bool() const { return governor_ != nullptr; }

 private:
  friend class Governor;
  Permit(Governor* governor, int lane) : governor_(governor), lane_(lane) {}
  Governor* governor_ = nullptr;
  int lane_ = 0;
};

class Exclusive {  // the device is the holder's until this dies; any thread may drop it
 public:
  Exclusive(Exclusive&&) noexcept = default;
  Exclusive& operator=(Exclusive&&) = delete;
  ~Exclusive();

 private:
  friend class Governor;
  explicit Exclusive(Ref<Governor> governor) : governor_(std::move(governor)) {}
  Ref<Governor> governor_;
};

class Governor : public std::enable_shared_from_this<Governor> {
 public:
  static constexpr int kMaxLimit = 1024;  // a word and a line each; nothing counts lanes in bits
  // limit 0: no caller has asked for lanes yet, see set_limit_once.
  static Ref<Governor> make(std::string device, int limit);

  // With step_aside the Permit is empty while an exclusive hold is on.
  Result<Permit> enter(ModelId model, Deadline deadline, DuringHold during = DuringHold::wait);
  // `owner` is the id that refuse_parked() and forget() take later: each runtime has one for its copies.
  Result<Permit> enter_copy(ModelId owner, Deadline deadline, DuringHold during = DuringHold::wait);
  // One of the first `lanes` lanes, for a call that will not wait; empty when there is none. Who joins calls
  // counts those through its door alone, as they tell it when they end.
  enum class Way : uint8_t { door, stream };
  Permit try_enter_lone(ModelId model, int lanes, Way way = Way::door);
  int lone(ModelId model) const { return words_.count(tag(model, kLone)); }
  // Ok once no lone call of the model is on a lane, whichever way it came; deadline.
  Status await_no_lone(ModelId model, Deadline deadline);
  // Calls f(lane) for each lane that is free, with the lane taken meanwhile: f neither blocks nor enters.
  template <class F>
  void with_free_lanes(F&& f);
  Result<Exclusive> exclusive(Deadline deadline);
  // Invalid on the thread that holds the device: for calls that others would run, who wait for its end.
  Status refuse_holder() const;
  void refuse_parked(ModelId model, const Status& why);  // answers `why` to present and later callers of it
  void forget(ModelId model);                            // the model is gone
  // Told when somebody waits for permits that it may keep for nothing yet; once by each runtime.
  void ask_when_full(std::weak_ptr<Holder> holder);
  void set_limit_once(int limit);  // no effect when there is a limit
  int limit() const { return limit_.load_relaxed(); }

  struct Stats {
    uint64_t entered = 0;
    uint64_t parked = 0;  // of those, had to wait
    uint64_t exclusives = 0;
    Duration longest_wait{0};
    int in_flight = 0;
    int waiting = 0;
  };
  Stats stats() const;

 private:
  friend class Permit;
  friend class Exclusive;
  // The lane of a copy's Permit. Not kNone, which says that a caller has to step aside.
  static constexpr int kNoLane = OwnerWords::kNone - 1;
  // In a lane's word, the first two beside the model's id.
  static constexpr uint64_t kTaken = 1, kLone = 2, kCollected = 3, kGranted = 4, kVisited = 5, kOnStream = 6;
  static constexpr int kTagBits = 3;
  int lone_and_on_streams(ModelId model) const { return lone(model) + words_.count(tag(model, kOnStream)); }
  static uint64_t tag(ModelId model, uint64_t how) { return static_cast<uint64_t>(model) << kTagBits | how; }
  static constexpr uint64_t kHeldOff = uint64_t{1} << 63;  // in copies_
  struct Caller {
    ModelId model;
    Ref<Parked> parked;
    DuringHold during;
  };
  struct ModelQueue {
    uint64_t served = 0;  // when, in grants
    std::deque<Caller> callers;
    Status refused;  // why no caller parks any more
  };
  static constexpr uint64_t kNobody = 0;  // no thread's number
  struct Queue {
    std::map<ModelId, ModelQueue> models;
    size_t waiting = 0;                                       // for a lane
    std::deque<Caller> copies;                                // that wait for the end of a hold
    std::deque<std::pair<Ref<Parked>, uint64_t>> exclusives;  // and their threads
    // The thread that has the device exclusively, or for which lanes are collected.
    uint64_t holder = kNobody;
    bool held = false;         // false with a holder: still collecting
    Ref<Parked> collecting;    // the holder to be, until held
    int collected = 0;         // lanes kept from all callers
    int draining = 0;          // threads in await_no_lone()
    uint64_t turn = 0;         // counts grants
    bool calls_first = false;  // after a hold: parked calls before the next hold
    uint64_t parked_count = 0, exclusive_count = 0;
    std::vector<std::weak_ptr<Holder>> holders;
  };
  struct Answer {
    Ref<Parked> caller;
    int lane;  // kNoLane: a copy may begin; kNone: step aside
  };
  using Answers = std::vector<Answer>;
  struct alignas(64) LaneState {
    Atomic<uint64_t> entered{0};  // written by the lane's owner only
  };

  struct Visit {
    Governor& governor;
    int lane;
    ~Visit() { governor.put_back(lane); }
  };

  explicit Governor(std::string device);
  Result<Permit> park(ModelId model, Deadline deadline, DuringHold during);
  static void ask(const std::vector<std::weak_ptr<Holder>>& holders);
  Status calls_while_it_holds() const;
  Permit admit(int lane, ModelId model);
  Permit count_in(int lane);
  void put_back(int lane);
  Result<Permit> park_copy(ModelId owner, Deadline deadline, DuringHold during);
  void leave(int lane);
  void leave_copy();
  void end_exclusive();
  void hand_over(Queue& queue, Answers& answers);  // gives free lanes to the next callers
  Ref<Parked> next_caller(Queue& queue);
  void collect(Queue& queue, Answers& answers);  // keeps free lanes for the next exclusive holder
  void release_copies(Queue& queue, Answers& answers);
  static void send_aside(Queue& queue, Answers& answers);
  void release_lanes(Queue& queue);
  void release_collected(Queue& queue, Answers& answers);
  Result<int> await(const Ref<Parked>& parked, Deadline deadline, bool for_exclusive, ModelId model);
  bool withdraw(const Ref<Parked>& parked, bool for_exclusive, ModelId model);
  void answer(const Answers& answers);

  const std::string device_;
  const uint32_t generation_;  // fork_generation() of the maker: a child hands nothing over
  OwnerWords words_;
  // How many copies' Permits are out, and kHeldOff while a holder collects or has the device; that bit
  // changes under the queue's lock. The last copy to leave finds the bit and hands over; a collector that set
  // it finds the count. Copies leave with release, and who collects acquires: the holder sees what they did.
  // The bit is cleared with release, and copies enter with acquire: they see what the holder did.
  Atomic<uint64_t> copies_{0};
  // The thread that has the device exclusively, 0 for none; changed under the queue's lock. Relaxed: it tells
  // each thread only whether that is itself, which it was told before it went on.
  Atomic<uint64_t> alone_{kNobody};
  // Set once under the queue's lock. A number: what lanes need is published by the words.
  Atomic<int> limit_{0};
  std::unique_ptr<LaneState[]> lanes_;        // made with the words
  Atomic<Duration::rep> longest_wait_ns_{0};  // a statistic
  mutable Guarded<Queue, Rank::kGovernor> queue_;
};

template <class F>
void Governor::with_free_lanes(F&& f) {
  for (int lane = 0; lane < words_.places(); ++lane) {
    if (!words_.try_take_at(lane, kVisited)) continue;
    const Visit visit{*this, lane};
    f(lane);
  }
}

}  // namespace heddle::runtime
