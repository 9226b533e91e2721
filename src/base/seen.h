// seen.h: which schedules go the way of another one, so that exploration leaves them out.
//
//   What       A Past is what a thread has done: a hash over its operations, each with the Past of the write
//              that it found or replaced. Pasts keeps one for each thread of a simulation. SeenStates keeps,
//              over all runs of an exploration, from which states which thread went on, and with how many
//              preemptions left: who comes there with no more of them finds nothing new. SharedWords are
//              those that several threads use and one of them writes: only before an operation on such a
//              word does it matter who goes first.
//   Equal      Schedules that lead to equal Pasts differ in the order of operations that do not notice each
//              other: each thread has found the same, each word was written by the same operation last, and
//              all will go on alike. Writes do not notice the loads before them.
//   Locks      A lock is a word that is changed where it is taken or given back, and read where it is not
//              got. The time is a word that jumps write; who looks at it learns its value.
//   Asleep     Who sleeps, and whose wait has ended, is the simulation's to add (scheduled.cpp). Until when
//              follows from what the sleeper has found, and from how many steps it has done.
//   Shared     A word is named by the thread that made it and how many that thread had made, so by the same
//              name in every schedule in which that thread has found the same. Which ones are shared is found
//              out by running: an exploration in which another one was found begins again. In the last one
//              no run has shared another word. A switch before an operation that nobody notices is a switch
//              before the thread's next one that somebody does; there it is made (Beat::owes).
//   Left out   Words of parts that have explorations of their own: no thread is switched before an operation
//              on one, unless it waits there. What was found there still tells states apart.
//   Not seen   Data that is no Atomic is held to be ordered by those and by locks, as C++ demands. What
//              nothing orders, such as the count of a std::shared_ptr or a std::stop_token, is not seen.
//              Where threads then go on otherwise it may be told: all schedules that go on from an equal
//              state by first options have to end with equal Pasts.
//   Chance     64 bits: of ten million states two are taken for one with a probability of 3 in a million.
//   Sources    Coons, Musuvathi and McKinley, "Bounded partial-order reduction", OOPSLA 2013: why what was
//              explored with fewer preemptions left cannot stand for more. Chalupa and others, "Data-centric
//              dynamic partial order reduction", POPL 2018: what loads find decides. Godefroid,
//              "Partial-order methods for the verification of concurrent systems", 1996.
//   Threads    Pasts: the simulation's, which run one at a time. The rest, between two runs, also the test's.
//   Blocks     Never.
#pragma once

#if defined(HEDDLE_SIM)

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/seam.h"

namespace heddle {

class SharedWords {
 public:
  bool has(uint64_t name) const { return known_.contains(name); }
  void add(uint64_t name) { found_.insert(name); }  // known from the next exploration on
  bool has_more() const { return !found_.empty(); }
  bool grow();  // before that one: true if there were more
  size_t size() const { return known_.size(); }

 private:
  std::unordered_set<uint64_t> known_, found_;
};

class Pasts final : public seam::Memory {
 public:
  explicit Pasts(SharedWords& shared) : shared_(shared) {}

  void start(uint32_t parent, uint32_t child);  // by number
  void join(uint32_t parent, uint32_t child);
  void run(uint32_t thread) { running_ = thread; }
  void tell(uint64_t value);                 // what the running thread learns that no word has
  void meet(bool begin) { meets_ = begin; }  // from here on, or no longer, threads run beside each other
  void jump(const void* time);               // it is written, by none of the threads
  // Words made from here on, or no longer, are left out.
  void leave_out(bool begin) { leaves_out_ = begin; }
  bool is_shared(const void* word);

  uint64_t all() const;  // of all threads that there were

  void make(const void* word) override;
  uint64_t load(const void* word, uint64_t newest, std::memory_order order) override;
  void store(const void* word, uint64_t, uint64_t, std::memory_order) override { change(word); }
  void change(const void* word, uint64_t, uint64_t, std::memory_order) override { change(word); }
  uint64_t compare(const void* word, uint64_t newest, const Comparison& how) override;
  void acquire(const void* lock) override { change(lock); }
  void release(const void* lock) override { change(lock); }
  void make_lock(const void* lock) override { make(lock); }
  void look(const void* word) override { find(word); }
  void wake(const void* key) override { use(key, running_, true); }

  static uint64_t mixed(std::initializer_list<uint64_t> values);

 private:
  struct Word {
    uint64_t name = 0, past = 0;  // the Past of who wrote it last; 0: nobody has
    uint32_t user = 0;            // since threads run beside each other; 0: none
    bool has_user = false, has_several = false, is_written = false, is_left_out = false;
  };
  Word& use(const void* word, uint32_t thread, bool writes);
  Word& at(const void* word);
  void find(const void* word);
  void change(const void* word);

  SharedWords& shared_;
  uint32_t running_ = 1;
  bool meets_ = false, leaves_out_ = false;
  std::vector<uint64_t> threads_ = {0, 0}, made_ = {0, 0};  // by number
  std::unordered_map<const void*, Word> words_;
};

class SeenStates {
 public:
  // A run is in this state, from where `thread` may go on, with so many preemptions left then.
  struct Option {
    uint64_t thread;
    size_t left;
  };
  // A bit for each option from which all that follows was or is explored.
  uint64_t met(uint64_t state, std::span<const Option> options);
  // The run goes on so; from there it takes first options, unless forget_way() says otherwise.
  void take(uint64_t state, uint64_t thread);
  void forget_way() { way_.clear(); }
  // The run is over, with this for its end. False: from the same on another run came to another end.
  bool end(uint64_t last);
  void clear();
  size_t size() const { return states_.size(); }  // counted once for each thread that went on from one

 private:
  struct Met {
    uint32_t left = 0;
    bool ended = false;
    uint64_t last = 0;  // where first options lead
  };
  std::unordered_map<uint64_t, Met> states_;
  std::vector<uint64_t> way_;
};

// What an exploration keeps over its runs.
struct Seen {
  SharedWords shared;
  SeenStates states;
};

}  // namespace heddle

#endif
