// owner_words.h: who owns which of a number of places: a word for each, on a cache line of its own.
//
//   What       A thread tries the place that it had last, then the next ones in turn. So threads that come
//              again and again keep to places of their own, and a warm one writes no line that another core
//              reads. Two threads may have had the same place last: one of them tries the next places in
//              turn and settles where no other thread comes. With the lowest free place instead, 24 threads
//              took each other's places without end (owner_words_test.cpp).
//   States     of a word: kFree -> its owner's tag -> kFree.
//   Parked     While parked() callers wait in a queue: then no place is taken past them, except by a thread
//              that had looked before; the holder of the queue's lock takes places for them.
//   Ordering   A thread that gives a place back writes the word and then looks for what others want of it
//              (parked callers, those that seek a stream, Model::close, a change of programs); they write
//              what they want and then look at the words. All four are seq_cst, so one of them sees the
//              other. What the last owner did is visible to the next.
//   None free  try_take() looks at one place after another: that it found none means that each was taken when
//              it was looked at.
//   Threads    Any; open(), park(), unpark() and take_parked(): the holder of the queue's lock.
//   Blocks     Never.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/atomic.h"
#include "base/yield.h"

namespace heddle::runtime {

// One thread's last place in each of the few OwnerWords that it used last: a device has one for its lanes and
// one for its streams. Hints. Numbers of OwnerWords do not come again, so that no hint outlives them, and a
// simulation finds none of another one.
class LastPlaces {
 public:
  int& of(uint64_t words) {  // 0 at first
    for (Entry& each : entries_) {
      if (each.words == words) return each.place;
    }
    newest_ = (newest_ + 1) % kKept;
    entries_[newest_] = {words, 0};
    return entries_[newest_].place;
  }

 private:
  static constexpr size_t kKept = 4;
  struct Entry {
    uint64_t words = 0;  // a number; 0: none
    int place = 0;
  };
  std::array<Entry, kKept> entries_{};
  size_t newest_ = 0;
};

class OwnerWords {
 public:
  static constexpr int kNone = -1;
  static constexpr uint64_t kFree = 0;

  // Once. All places belong to `owner` at first.
  void open(int places, uint64_t owner) {
    words_ = std::make_unique<Word[]>(static_cast<size_t>(places));
    for (int place = 0; place < places; ++place) word(place).store_relaxed(owner);
    places_.store_release(places);
  }
  int places() const { return places_.load_acquire(); }

  int last() const { return last_places_.of(number_); }  // the place that this thread had last; 0: none
  // A free place below `most`: `first`, or the next one in turn. kNone when it found none, or callers are
  // parked.
  int try_take(uint64_t owner, int first, int most) {
    if (parked_.load_relaxed()) return kNone;  // a hint here: who parks looks at the words afterwards
    const int places = std::min(most, this->places());
    int place = first < places ? first : 0;
    for (int tried = 0; tried < places; ++tried) {
      if (try_take_at(place, owner)) {
        seam::did("words.take", place);
        last_places_.of(number_) = place;
        return place;
      }
      if (++place == places) place = 0;
    }
    return kNone;
  }
  bool try_take_at(int place, uint64_t owner) {
    uint64_t seen = kFree;
    // seq_cst for those who find it taken, and sleep: the head's Ordering.
    if (word(place).load_seq_cst() != kFree) return false;
    yield_point("owner_words.take");
    return word(place).cas_strong_seq_cst(seen, owner);
  }
  // True: callers are parked, and the thread goes on to hand free places over.
  [[nodiscard]] bool give_back(int place) {
    word(place).store_seq_cst(kFree);
    seam::did("words.give_back", place);
    const bool parked = parked_.load_seq_cst();
    seam::did("words.look_for_parked", parked);
    return parked;
  }
  // By the thread that a place was taken for: it is its last one from here on.
  void pass_to(int place, uint64_t owner) {
    word(place).store_relaxed(owner);
    seam::did("words.pass_to", place);
    last_places_.of(number_) = place;
  }

  void park() {
    parked_.store_seq_cst(true);
    seam::did("words.park");
  }
  void unpark() {
    parked_.store_seq_cst(false);
    seam::did("words.unpark");
  }
  int take_parked(uint64_t owner) {  // the lowest free one
    for (int place = 0; place < places(); ++place) {
      if (!try_take_at(place, owner)) continue;
      seam::did("words.take_parked", place);
      return place;
    }
    return kNone;
  }

  uint64_t owner(int place) const { return word(place).load_seq_cst(); }
  int count(uint64_t owner) const {
    int count = 0;
    for (int place = 0; place < places(); ++place) count += word(place).load_seq_cst() == owner ? 1 : 0;
    return count;
  }

 private:
  struct alignas(64) Word {
    Atomic<uint64_t> owner{kFree};
  };
  Atomic<uint64_t>& word(int place) const { return words_[static_cast<size_t>(place)].owner; }

  inline static constinit thread_local LastPlaces last_places_;
  inline static constinit Atomic<uint64_t> made_{0};  // numbers them: orders nothing
  const uint64_t number_ = made_.add_relaxed(1) + 1;
  std::unique_ptr<Word[]> words_;  // published by places_
  Atomic<int> places_{0};
  Atomic<bool> parked_{false};  // written under the queue's lock
};

}  // namespace heddle::runtime
