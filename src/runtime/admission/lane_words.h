// lane_words.h: who has which lane: a word for each, on a cache line of its own.
//
//   What       A thread tries the lane that it had last, then the others in turn. So threads that call in a
//              loop keep to lanes of their own, and a warm call writes no line that another core reads.
//   States     of a word: kFree -> its owner's tag -> kFree.
//   Parked     While parked() callers wait in a queue: then no lane is taken past them; the holder of the
//              queue's lock takes lanes for them.
//   Ordering   A thread that gives a lane back writes the word and then looks for what others want of it
//              (parked callers, Model::close, a change of programs); they write what they want and then look
//              at the words. All four are seq_cst, so one of them sees the other. What the last owner did is
//              visible to the next.
//   Threads    Any; open(), park(), unpark() and take_parked(): the holder of the queue's lock.
//   Blocks     Never.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/atomic.h"
#include "base/yield.h"

namespace heddle::runtime {

class LaneWords {
 public:
  static constexpr int kNone = -1;
  static constexpr uint64_t kFree = 0;

  // Once. All lanes belong to `owner` at first.
  void open(int lanes, uint64_t owner) {
    words_ = std::make_unique<Word[]>(static_cast<size_t>(lanes));
    for (int lane = 0; lane < lanes; ++lane) words_[static_cast<size_t>(lane)].owner.store_relaxed(owner);
    lanes_.store_release(lanes);
  }
  int lanes() const { return lanes_.load_acquire(); }

  // A free lane below `most`; kNone when there is none, or callers are parked.
  int try_take(uint64_t owner, int most) {
    if (parked_.load_acquire()) return kNone;
    const int lanes = std::min(most, this->lanes());
    int lane = last_ < lanes ? last_ : 0;
#if defined(HEDDLE_SIM)
    if (seam::simulated()) lane = 0;  // its seed knows no other simulation
#endif
    for (int tried = 0; tried < lanes; ++tried) {
      if (try_take_at(lane, owner)) {
        last_ = lane;
        return lane;
      }
      if (++lane == lanes) lane = 0;
    }
    return kNone;
  }
  bool try_take_at(int lane, uint64_t owner) {
    uint64_t seen = kFree;
    if (word(lane).load_relaxed() != kFree) return false;
    yield_point("lane_words.take");
    return word(lane).cas_strong_seq_cst(seen, owner);
  }
  // True: callers are parked, and the thread goes on to hand free lanes over.
  [[nodiscard]] bool give_back(int lane) {
    word(lane).store_seq_cst(kFree);
    return parked_.load_seq_cst();
  }
  void pass_to(int lane, uint64_t owner) { word(lane).store_relaxed(owner); }  // by the lane's owner

  void park() { parked_.store_seq_cst(true); }
  void unpark() { parked_.store_seq_cst(false); }
  int take_parked(uint64_t owner) {
    for (int lane = 0; lane < lanes(); ++lane) {
      if (try_take_at(lane, owner)) return lane;
    }
    return kNone;
  }

  uint64_t owner(int lane) const { return word(lane).load_seq_cst(); }
  int count(uint64_t owner) const {
    int count = 0;
    for (int lane = 0; lane < lanes(); ++lane) count += word(lane).load_seq_cst() == owner ? 1 : 0;
    return count;
  }

 private:
  struct alignas(64) Word {
    Atomic<uint64_t> owner{kFree};
  };
  Atomic<uint64_t>& word(int lane) const { return words_[static_cast<size_t>(lane)].owner; }

  inline static constinit thread_local int last_ = 0;  // a hint, for all devices
  std::unique_ptr<Word[]> words_;                      // published by lanes_
  Atomic<int> lanes_{0};
  Atomic<bool> parked_{false};  // written under the queue's lock
};

}  // namespace heddle::runtime
