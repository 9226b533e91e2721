// weak_memory.h: what a load may find under the memory orders of C++20, for simulations.
//
//   What       Each word has its values in modification order, each with the view of who wrote it. A view is
//              the oldest value of each word that its owner may still find, and what happened before. A load
//              finds the newest value, or an older one that is not before its thread's view: the Strategy
//              chooses (a stale read). Acquire takes the view that a release left with the value. A
//              read-modify-write finds the newest value, and goes on with the release sequence that it is
//              in.
//   seq_cst    Stands in one order, that of the steps. A seq_cst load finds no older value of a word than the
//              seq_cst operations on it before: what [atomics.order] 4 asks of operations. There are no
//              fences in src.
//   Locks      acquire() and release(), starts and joins of threads hand views on.
//   Watched    Data that is no atomic. Two accesses of which neither happened before the other, one of them a
//              write, are a failure, and so is one to data that is gone. Atomics, too, have to be seen made.
//   Not shown  Modification order is the order of the steps: a store does not go before one that ran earlier
//              (2+2W), and no load finds what is stored later (load buffering). A compare-and-swap does not
//              fail for no reason.
//   Sources    Kang, Hur, Lahav, Vafeiadis and Dreyer, "A promising semantics for relaxed-memory
//              concurrency", POPL 2017, without promises; Lahav, Vafeiadis, Kang, Hur and Dreyer,
//              "Repairing sequential consistency in C/C++11", PLDI 2017.
//   Threads    The simulation's, which run one at a time.
//   Blocks     Never.
#pragma once

#if defined(HEDDLE_SIM)

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/seam.h"
#include "base/strategy.h"

namespace heddle {

class WeakMemory final : public seam::Memory {
 public:
  WeakMemory(Strategy& strategy, std::function<void(const std::string&)> fail)
      : strategy_(strategy), fail_(std::move(fail)) {}

  void start(uint32_t parent, uint32_t child);  // by number
  void join(uint32_t parent, uint32_t child);
  void run(uint32_t thread) { current_ = thread; }

  void make(const void* word) override;
  uint64_t load(const void* word, uint64_t newest, std::memory_order order) override;
  void store(const void* word, uint64_t newest, uint64_t value, std::memory_order order) override;
  void change(const void* word, uint64_t newest, uint64_t value, std::memory_order order) override;
  uint64_t compare(const void* word, uint64_t newest, const Comparison& how) override;
  void acquire(const void* lock) override;
  void release(const void* lock) override;

  // Of data that is no atomic.
  void watch(const void* data);  // it is made
  void read(const void* data);
  void write(const void* data);
  void end_watch(const void* data);

  uint64_t stale_reads() const { return stale_reads_; }

 private:
  struct View {
    std::vector<uint32_t> oldest;  // by the word's number: an index into its values
    std::vector<uint32_t> clock;   // by the thread's number: up to which of its operations all is seen
    void join(const View& other);
  };
  struct Value {
    uint64_t bits;
    std::shared_ptr<const View> left;  // by a release; null: none
  };
  struct Word {
    uint32_t number;
    std::vector<Value> values;
    uint32_t seen_in_order = 0;  // the newest index that a seq_cst operation has seen
    uint32_t maker, made_at;     // maker 0: before all threads
  };
  struct Data {
    uint32_t writer, written_at;
    std::vector<uint32_t> read_at;  // by the thread's number
    bool gone = false;
  };

  Word& word_at(const void* address, uint64_t newest);
  View& mine() { return views_[current_]; }
  static uint32_t& at(std::vector<uint32_t>& numbers, uint32_t index);
  bool saw(uint32_t thread, uint32_t moment) { return at(mine().clock, thread) >= moment; }
  uint32_t moment() { return ++at(mine().clock, current_); }  // of this thread's next operation
  void find(Word& word, uint32_t index, std::memory_order order);
  void append(Word& word, uint64_t bits, std::memory_order order, bool goes_on);
  uint32_t oldest_for(Word& word, std::memory_order order);
  Data& data_at(const void* address);

  Strategy& strategy_;
  const std::function<void(const std::string&)> fail_;
  uint32_t current_ = 1;
  std::map<uint32_t, View> views_;  // by the thread's number
  std::map<const void*, Word> words_;
  std::map<const void*, View> locks_;
  std::map<const void*, Data> data_;
  uint32_t words_made_ = 0;
  uint64_t stale_reads_ = 0;
};

}  // namespace heddle

#endif
