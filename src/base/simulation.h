// simulation.h: threads that run one at a time, in an order and a time that a seed decides.
//
//   What       simulate(seed, body) runs `body` on a simulated thread. Each heddle::Thread made there is one,
//              too. At every seam (base/seam.h) the seed decides which thread goes on, so that a run is
//              repeated by its seed, on any machine.
//   Time       Virtual. Clock::real() tells it to simulated threads, deadlines end by it. A step takes kStep.
//              When every thread waits, it jumps to the next deadline. It may jump, by at most
//              stall_max, while others could run: they were kept from a core for that long.
//   By seed    How often threads are switched, whether one of them is slow, whether a switched thread stays
//              away for a while, whether waits end for no reason, whether time jumps: one seed prefers
//              another mixture than the next.
//   Failures   Deadlock, more steps than steps_max (livelock), a wrong order of locks, an exception that
//              leaves a thread, fail() and expect(). The report names the seed, shows where every thread
//              stands, and the last decisions. The failed simulation's threads stay where they are for good,
//              with all that they use: nothing is unwound, and the next simulation may begin.
//   Choices    With a Strategy (base/strategy.h) the seed decides nothing: the strategy does, for the threads
//              between let_go() and the last step_out(). Before and after that each thread goes on as long as
//              it can.
//   Order      Operations of Atomics are interleaved, and all of them seq_cst. With `weak_orders` a load may
//              find an older value where its order allows that (base/weak_memory.h).
//   Threads    simulate(): any thread outside a simulation. The rest: simulated threads. What they lock, wait
//              for or notify is used by no other thread meanwhile. They block through seams only: not on a
//              file, a std::mutex or the initialisation of a static that meets a seam.
//   Blocks     simulate(), until all threads have ended, or one has not come to a seam within the patience.
//   Lifetime   A Simulation lives as long as its threads. Only builds with HEDDLE_SIM have it.
#pragma once

#if defined(HEDDLE_SIM)

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/seam.h"
#include "base/seeded_numbers.h"
#include "base/seen.h"
#include "base/strategy.h"
#include "base/weak_memory.h"

namespace heddle {

struct SimulationOptions {
  uint64_t steps_max = 200'000;
  size_t trace_max = 40;  // decisions that the report shows, the last ones
  Duration stall_max = std::chrono::milliseconds(20);
  Duration patience = std::chrono::seconds(60);  // of the machine's time, for a thread that blocks natively
  Strategy* strategy = nullptr;                  // null: the seed decides
  bool weak_orders = false;                      // for a strategy
  bool listen = false;                           // keep what roles did
};

// What a thread with a role said by seam::did().
struct ToldStep {
  int role;
  const char* name;
  int64_t value;
};

struct SimulationReport {
  uint64_t seed = 0;
  std::string failure;  // empty: all threads have ended. Else what happened, the threads, the last decisions
  uint64_t steps = 0, hand_overs = 0;
  uint64_t fingerprint = 0;  // of all decisions: equal for equal seeds
  Duration took{0};          // virtual
  uint64_t past = 0;         // what all threads did and found (base/seen.h), for a strategy that asks
  std::vector<ToldStep> told;
  bool ok() const { return failure.empty(); }
};

class Simulation final : public seam::Beat {
 public:
  static constexpr Duration kStep{20};

  Simulation(uint64_t seed, const SimulationOptions& options);

  // For the body and its threads.
  static Simulation* current();  // of this thread; null outside
  uint64_t seed() const { return seed_; }
  uint64_t random(uint64_t below) { return learn(choices_.below(below)); }  // the body's own choices
  void expect(bool holds, std::string_view what);                           // fails with `what`
  [[noreturn]] void fail(const std::string& why);
  void pause(Duration wait);  // in virtual time
  // What `make` makes has schedules of its own elsewhere: where a strategy explores states (base/seen.h),
  // threads are not switched before operations on its words.
  template <class Make>
  auto leave_out(Make&& make) {
    struct Until {
      Pasts* pasts;
      ~Until() {
        if (pasts != nullptr) pasts->leave_out(false);
      }
    } const until{pasts_.get()};
    if (pasts_ != nullptr) pasts_->leave_out(true);
    return make();
  }
  // This thread plays a process of a protocol's model from here on: its steps are kept, others' are not.
  void play(int role);
  // Threads made by the body line up, and are let go at one moment. let_go() returns when all have stepped
  // out, each as the last thing that it does.
  void line_up();
  void let_go(int threads);
  void step_out();
  WeakMemory* weak_memory() { return memory_.get(); }  // null without weak_orders

  // For the seams.
  void decide(const char* at, const void* word);
  void decide_owed(const char* at, const void* word);
  void let_others_run(const char* at);
  void sleep(const seam::Sleep& sleep);
  void wake(const void* key, int sleepers, const char* at);
  TimePoint now() const {
    return TimePoint(skipped_ + kStep * static_cast<Duration::rep>(stands_ ? stands_since_ : steps));
  }
  TimePoint look_at_clock() {
    seam::notice("clock", &kTime);
    if (pasts_ != nullptr) pasts_->look(&kTime);
    learn(static_cast<uint64_t>(now().time_since_epoch().count()));
    return now();
  }
  Duration cpu_time() const;
  uint32_t thread_number() const { return current_->number; }
  uint64_t serial() { return learn(++serials_); }
  uint64_t learn(uint64_t value) {  // by this thread, from no Atomic
    if (pasts_ != nullptr) pasts_->tell(value);
    return value;
  }
  void tell(const char* step, int64_t value);
  seam::NewThread announce(std::string name);
  void withdraw(uint32_t number);
  void run(const seam::NewThread& thread, const std::function<void()>& body);
  void join(uint32_t number);
  void end_thread();

 private:
  friend SimulationReport simulate(uint64_t, const std::function<void(Simulation&)>&,
                                   const SimulationOptions&);
  // One thread waits for it, another one gives it: how the right to run is handed over.
  class Baton {
   public:
    void give();
    void take();
    bool take_within(Duration machine_time);

   private:
    std::atomic<uint32_t> given_{0};  // not an Atomic, which is a seam: this is what seams stand on
  };
  struct Actor {
    uint32_t number = 0;
    std::string name;
    enum State : uint8_t { kReady, kAsleep, kEnded } state = kReady;
    seam::Sleep sleep{};       // while asleep
    const char* at = "begin";  // the seam where it stands
    uint64_t cpu_steps = 0;
    uint64_t away_until = 0;  // step: others go first until then
    bool let_go = false;      // just now: it comes to its first operation
    bool stepped_out = false;
    int role = -1;  // in the protocol's model; -1: none
    // With a strategy, sets of threads by number: those that ran since this one gave way last, those that
    // could run ever since, and those that it therefore goes behind (CHESS, section 4: fair schedules).
    struct Fair {
      uint64_t ran = 0, could = 0, behind = 0;
    } fair, before;  // before: the last turn that was unnoticed
    Baton baton;
  };
  struct Decision {
    uint64_t step;
    uint32_t from, to;  // equal: time jumped, or a wait ended for no reason
    const char* at;
  };

  [[noreturn]] void stay();
  void count_step();
  void check_steps();
  void wake(const void* key, int sleepers);
  bool by_strategy() const { return options_.strategy != nullptr; }
  void decide_by_strategy(const char* at, const void* word);
  void turn_by_strategy(const char* at, Strategy::Turn turn);
  void give_way_by_strategy(const char* at);
  Actor& choose(std::vector<uint32_t>& threads, Strategy::Turn turn);
  uint64_t state() const;
  bool may_run(const Actor& actor) const;
  uint64_t ready_ones() const;
  std::vector<uint32_t> others_ready() const;  // in turn after this one
  void disturb();
  void expire();
  void skip_to(TimePoint when);
  TimePoint earliest() const;
  Actor* pick(const Actor* but);
  bool stays_away(const Actor& actor) const { return actor.away_until > steps; }
  Actor& next_ready();
  void hand_over(Actor& next, const char* at);
  void goes_on(Actor& next);
  void record(uint32_t from, uint32_t to, const char* at);
  std::string describe(const std::string& why) const;
  std::string describe(const Actor& actor) const;
  static constexpr char kTime = 0;  // names the time, as a word is named by its address
  static std::string name_of(const Actor& actor);

  const uint64_t seed_;
  const SimulationOptions options_;
  SeededNumbers order_, choices_;
  // Of the seed: mean weight between two switches, one in so many decisions, 0 for never.
  const uint64_t pace_, absences_, stalls_, no_reasons_;
  const uint32_t slow_;  // the number of a thread that is rarely picked; perhaps there is none
  Duration skipped_{std::chrono::hours(1)};  // time that passed without steps
  uint64_t serials_ = 0;
  uint64_t idle_rounds_ = 0;  // a thread gave way, and no other could run
  std::deque<Actor> actors_;  // by number - 1
  std::vector<Actor*> living_;
  Actor* current_ = nullptr;  // the one that runs
  uint64_t runs_since_ = 0;   // step
  std::vector<Decision> trace_;
  uint64_t decisions_ = 0, hand_overs_ = 0, fingerprint_ = 0;
  std::vector<ToldStep> told_;
  std::string failure_;
  int lined_up_ = 0, inside_ = 0;
  bool armed_ = false;   // let go: choices are the strategy's
  bool stands_ = false;  // time: it passes by jumps alone
  uint64_t stands_since_ = 0;
  std::unique_ptr<WeakMemory> memory_;
  std::unique_ptr<Pasts> pasts_;
  std::atomic<bool> abandoned_{false};  // simulate() has lost its patience (release): who comes yet, stays
  Baton over_;
};

SimulationReport simulate(uint64_t seed, const std::function<void(Simulation&)>& body,
                          const SimulationOptions& options = {});

}  // namespace heddle

#endif
