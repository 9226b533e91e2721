// seam.h: the one place through which every pause and every switch of a thread of ours goes.
//
//   What       Locks, conditions, waits and operations of Atomics, starts and joins of threads, the clock,
//              Backoff, give_way() and yield_point() ask here first. In a build with HEDDLE_SIM a thread of a
//              simulation (base/simulation.h) is then told when to run; every other thread, and every thread
//              in a build without HEDDLE_SIM, does what it would do anyway.
//   Switch     HEDDLE_SIM (compile time). Without it step() is empty, simulated() false and seed() 0, and the
//              rest does not exist.
//   Threads    Any. Of one simulation exactly one thread runs, and only that one touches its state.
//   Blocks     In a simulation, until the simulation picks this thread again. Never natively.
//   Lifetime   Names of seams (`at`) are string literals.
#pragma once

#include <cstdint>

#if defined(HEDDLE_SIM)
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#endif

namespace heddle::seam {

#if defined(HEDDLE_SIM)

using TimePoint = std::chrono::steady_clock::time_point;

// What loads of Atomics may find under their memory orders (base/weak_memory.h). A word is named by its
// address; `newest` is its value in the order of the steps; all values as bits.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual void make(const void* word) = 0;  // its constructor runs
  virtual uint64_t load(const void* word, uint64_t newest, std::memory_order order) = 0;
  virtual void store(const void* word, uint64_t newest, uint64_t value, std::memory_order order) = 0;
  virtual void change(const void* word, uint64_t newest, uint64_t value, std::memory_order order) = 0;
  struct Comparison {
    uint64_t expected, desired;
    std::memory_order success, failure;
  };
  virtual uint64_t compare(const void* word, uint64_t newest, const Comparison& how) = 0;  // what was found
  virtual void make_lock(const void*) {}
  virtual void look(const void*) {}  // at a word or a lock, and at no value that a load could miss
  virtual void wake(const void*) {}  // who sleeps there
  virtual void acquire(const void* lock) = 0;
  virtual void release(const void* lock) = 0;
};

// What a step reads and writes, apart from the rest of its simulation so that it can be inline.
struct Beat {
  uint64_t steps = 0;  // of all threads
  int64_t quiet = 0;   // weights of steps until another thread may be picked
  // For tests of what a call costs: read-modify-writes of Atomics, and mutexes taken.
  uint64_t read_modify_writes = 0, locks = 0;
  Memory* memory = nullptr;  // null: a load finds the newest value
  bool told = false;         // what did() says is kept
  bool systematic = false;   // a strategy chooses, at each operation that threads can share and nowhere else
  bool owes = false;         // a choice, which was put off until the running thread does what others notice
};

// The simulation that this thread belongs to; null: none.
inline constinit thread_local Beat* beat = nullptr;

inline bool simulated() { return beat != nullptr; }
uint64_t seed();  // of this thread's simulation; 0: it belongs to none

// A lock or a wait is a place where threads meet: four times as likely to switch there as at an atomic.
inline constexpr int kAtomic = 1, kMeeting = 4;

// `word` is what the operation is on; null: not known.
void decide(const char* at, const void* word);
void decide_owed(const char* at, const void* word);

inline void count_read_modify_write() {
  if (beat != nullptr) ++beat->read_modify_writes;
}
inline void count_lock() {
  if (beat != nullptr) ++beat->locks;
}
inline Memory* memory() { return beat == nullptr ? nullptr : beat->memory; }

// Another thread may run here.
inline void step(const char* at, int weight = kMeeting, const void* word = nullptr) {
  if (beat == nullptr) return;
  ++beat->steps;
  if ((beat->quiet -= weight) <= 0) decide(at, word);
}

// Before what others notice, where no step() is.
inline void notice(const char* at, const void* word) {
  if (beat != nullptr && beat->owes) decide_owed(at, word);
}

// Where nothing is shared until the next seam: to go on elsewhere here is to go on elsewhere there.
inline void pass(const char* at, int weight = kMeeting) {
  if (beat == nullptr) return;
  if (!beat->systematic) return step(at, weight);
  ++beat->steps;
}

void tell(const char* step, int64_t value);

// A step of a protocol, said after its operation and before the next seam: so a simulation that listens has
// the steps in the order in which they were. Steps are compared with the protocol's model (models/README.md).
inline void did(const char* step, int64_t value = 0) {
  if (beat != nullptr && beat->told) tell(step, value);
}

// The rest: on a simulated thread only.

// Other threads run here if any can; otherwise time passes. For those who look again and again.
void let_others_run(const char* at);

struct Sleep {
  const void* key;  // what wake() names
  const char* at;
  TimePoint until = TimePoint::max();
  uint32_t holder = 0;         // number of the thread that can end it, for the report; 0: not known
  const char* what = nullptr;  // of the thing waited for, for the report
};
void sleep(const Sleep&);  // until woken, `until`, or for no reason: look again
void wake(const void* key, int sleepers, const char* at);
inline constexpr int kAll = 0x7fffffff;

TimePoint now();                      // virtual time, a step
std::chrono::nanoseconds cpu_time();  // virtual time that passed while this thread ran
uint32_t thread_number();             // 1, 2, ... in order of their start: equal seeds, equal numbers
uint64_t serial();                    // 1, 2, ... in order of the calls, in place of a count of the process

// The maker of a thread announces it, the new thread runs its body through run().
struct NewThread {
  Beat* simulation;
  void* actor;  // the simulation's own
  uint32_t number;
};
NewThread announce(std::string name);
void withdraw(const NewThread&);  // the system had no thread left
void run(const NewThread&, const std::function<void()>& body);
void join(uint32_t number);

// Ends the simulation as a failure: its report names the seed and shows where each thread stands.
[[noreturn]] void fail(const std::string& why);

#else

[[gnu::always_inline]] inline void step(const char*, int = 0, const void* = nullptr) {}
[[gnu::always_inline]] inline void notice(const char*, const void*) {}
[[gnu::always_inline]] inline void pass(const char*, int = 0) {}
[[gnu::always_inline]] inline void did(const char*, int64_t = 0) {}
[[gnu::always_inline]] inline void count_read_modify_write() {}
inline constexpr int kAtomic = 1;
inline constexpr bool simulated() { return false; }
inline constexpr uint64_t seed() { return 0; }

#endif

}  // namespace heddle::seam
