// soak_fixture.h: the books of a soak: what was asked, how each operation ended, how much memory there is.
//
//   What       A soak runs rounds of random operations on random numbers of threads. Each operation is asked
//              for once and has to end once: with the right value, or with an error that it may end with.
//              After each round, with nothing under way, memory is measured.
//   Threads    Ledger and Operation: any. World, Random: as said there.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <random>

#include "harness_fixture.h"

namespace stress {

using Codes = uint32_t;  // a set of error codes, a bit each
constexpr Codes code_bit(heddle::ErrorCode code) { return Codes{1} << static_cast<unsigned>(code); }
constexpr Codes kNoError = 0;

class Ledger;

// One operation. The first end counts; another one is a fault.
class Operation {
 public:
  Operation(std::shared_ptr<Ledger> ledger, const char* kind, Codes may)
      : ledger_(std::move(ledger)), kind_(kind), may_(may) {}
  void end(bool is_right);
  void end(heddle::ErrorCode code, const std::string& what);
  void end(const std::exception_ptr& error);
  // Only with one of these from now on. Nobody may end it meanwhile.
  void must_end_with(Codes codes) { may_ = codes, may_be_right_ = codes == kNoError; }

 private:
  std::shared_ptr<Ledger> ledger_;
  const char* kind_;
  Codes may_;
  bool may_be_right_ = true;
  std::atomic<int> ends_ = 0;
};

class Ledger : public std::enable_shared_from_this<Ledger> {
 public:
  struct Sum {
    uint64_t asked = 0, right = 0;
    std::map<std::string, uint64_t> errors;  // those that it might end with
  };
  std::shared_ptr<Operation> ask(const char* kind, Codes may);
  // False: some operation has not ended by then. It is lost.
  bool wait_for_all(std::chrono::seconds at_most);
  uint64_t open() const;
  uint64_t ended() const;
  std::map<std::string, Sum> sums() const;
  // What went wrong, the first few in words; empty: nothing.
  std::vector<std::string> faults() const;
  void fault(const std::string& what);

 private:
  friend class Operation;
  void end(const char* kind, const std::string& error);
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::map<std::string, Sum> sums_;
  std::vector<std::string> faults_;
  uint64_t open_ = 0, ends_ = 0;
};

// Runs a step that answers before it returns.
template <class Step>
void answered(Ledger& ledger, const char* kind, Codes may, Step&& is_right) {
  const auto operation = ledger.ask(kind, may);
  try {
    operation->end(is_right());
  } catch (const heddle::Error& error) {
    operation->end(error.code(), error.what());
  }
}

// The choices of one thread: the same for a seed. How threads meet is the machine's.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t below(uint64_t end) { return engine_() % end; }
  bool one_in(uint64_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

// A device with models and a queue, for one soak or for one round. Its threads share it.
struct World {
  World(heddle::Device its_device, bool with_networks);
  heddle::Device device;
  heddle::Model affine, apart, lookup;  // apart: its calls are not joined
  std::vector<Case> networks;
  heddle::BatchQueue queue;
  Codes may = kNoError;                                 // what the device's fault makes operations end with
  heddle::Timeout patience = std::chrono::seconds(60);  // of each call
};

// What threads of a round share beside the world.
struct Round {
  explicit Round(uint64_t its_seed) : seed(its_seed) {}
  // A source that some thread of the round may stop at any time.
  std::stop_source withdrawable(size_t thread);
  void withdraw_some(Random& random);

  const uint64_t seed;
  std::atomic<uint64_t> next{1};  // makes operations' inputs differ

 private:
  std::mutex mutex_;
  std::map<size_t, std::stop_source> sources_;
};

// Does `count` operations that `random` chooses, and ends each in the ledger, or lets an answer end it.
void work(const World& world, Ledger& ledger, Round& round, size_t thread, Random& random, uint64_t count);

// With nothing under way and the device's cache empty.
struct Level {
  uint64_t books = 0;  // bytes that tensors, weights and calls hold, by the runtime's count
  uint64_t heap = 0;   // bytes that malloc has given out; 0: not known here
  uint64_t rss = 0;    // bytes of the process in memory; 0: not known here
};
Level level_of(const heddle::Device& device);
// malloc makes up to eight arenas a processor as threads come, and each keeps pages: with many processors
// resident memory grows by that for as long as a soak of minutes takes. From now on it makes no more than for
// two.
void keep_arenas_few();

// How far a level may rise over the highest of its warm-up: threads' stacks, and what malloc keeps apart.
struct LevelBounds {
  uint64_t books, heap, rss;
};
// Watches levels: the first `warm` of them say what is usual; from then on the least of the last few counts,
// so that a leak is seen and a peak is not.
class Levels {
 public:
  Levels(const LevelBounds& bounds) : bounds_(bounds) {}
  void add(const Level& level, bool is_warm_up);
  std::string grown() const;  // empty: it has not
  const Level& usual() const { return usual_; }
  Level recent() const;

 private:
  static constexpr size_t kRecent = 6;
  LevelBounds bounds_;
  Level usual_;
  std::array<Level, kRecent> last_{};
  size_t seen_ = 0;
};

}  // namespace stress
