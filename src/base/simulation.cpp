#include "base/simulation.h"

#if defined(HEDDLE_SIM)

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

namespace heddle {

namespace {

// Destroyed after every other thread-local object of its thread, since it is made first: what they do at the
// thread's end is simulated, too.
struct LastOfThread {
  Simulation* of = nullptr;
  ~LastOfThread() {
    if (of != nullptr) of->end_thread();
  }
};

// One core for all: only one of them runs at a time, and a hand-over between cores takes several times as
// long. Where the system refuses, it is slower.
void stay_on_this_core() {
  const int core = std::max(0, sched_getcpu());
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(core), &one);
  static_cast<void>(sched_setaffinity(0, sizeof(one), &one));
  // Who gives the turn away goes on until it waits. Otherwise the thread that it wakes takes the core at
  // once, and what was left to do until the wait costs two more switches.
  const sched_param usual{};
  static_cast<void>(sched_setscheduler(0, SCHED_BATCH, &usual));
}

uint64_t one_of(SeededNumbers& numbers, std::initializer_list<uint64_t> values) {
  return values.begin()[numbers.below(values.size())];
}

}  // namespace

void Simulation::Baton::give() {
  given_.store(1, std::memory_order_release);  // pairs with take()
  syscall(SYS_futex, &given_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

void Simulation::Baton::take() {
  while (given_.exchange(0, std::memory_order_acquire) == 0) {
    syscall(SYS_futex, &given_, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
  }
}

bool Simulation::Baton::take_within(Duration machine_time) {
  const auto end = std::chrono::steady_clock::now() + machine_time;
  while (given_.exchange(0, std::memory_order_acquire) == 0) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= Duration(0)) return false;
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(left);
    const timespec limit{static_cast<time_t>(seconds.count()), 0};
    syscall(SYS_futex, &given_, FUTEX_WAIT_PRIVATE, 0, &limit, nullptr, 0);
  }
  return true;
}

Simulation::Simulation(uint64_t seed, const SimulationOptions& options)
    : seed_(seed),
      options_(options),
      order_(seed),
      choices_(order_.next()),
      pace_(one_of(order_, {2, 4, 8, 16, 32, 64})),
      absences_(one_of(order_, {0, 16, 4})),
      stalls_(one_of(order_, {0, 64, 8})),
      no_reasons_(one_of(order_, {0, 64, 8})),
      slow_(static_cast<uint32_t>(order_.below(10))) {
  systematic = by_strategy();
  told = options_.listen;
  quiet = by_strategy() ? 0 : static_cast<int64_t>(1 + order_.below(2 * pace_));
  if (options.weak_orders) {
    memory_ = std::make_unique<WeakMemory>(*options.strategy, [this](const std::string& why) { fail(why); });
    memory = memory_.get();
  } else if (SharedWords* const shared = by_strategy() ? options.strategy->shared_words() : nullptr) {
    pasts_ = std::make_unique<Pasts>(*shared);
    memory = pasts_.get();
  }
}

void Simulation::play(int role) { current_->role = role; }

void Simulation::tell(const char* step, int64_t value) {
  if (current_->role >= 0) told_.push_back({current_->role, step, value});
}

Simulation* Simulation::current() { return static_cast<Simulation*>(seam::beat); }

void Simulation::expect(bool holds, std::string_view what) {
  if (!holds) fail(std::string(what));
}

void Simulation::fail(const std::string& why) {
  if (abandoned_.load(std::memory_order_acquire)) stay();
  failure_ = describe(why);
  over_.give();
  stay();
}

// For good: nobody gives its baton. What this thread and the others use stays as it is.
void Simulation::stay() {
  for (Baton& mine = current_->baton;;) mine.take();
}

void Simulation::pause(Duration wait) {
  const TimePoint until = look_at_clock() + wait;
  while (now() < until) sleep({.key = &current_->baton, .at = "pause", .until = until});
}

void Simulation::decide(const char* at, const void* word) {
  check_steps();
  if (by_strategy()) return decide_by_strategy(at, word);
  quiet = static_cast<int64_t>(1 + order_.below(2 * pace_));
  disturb();
  Actor* const next = pick(current_);
  if (next == nullptr || stays_away(*next)) return;
  if (absences_ != 0 && order_.below(absences_) == 0) {
    current_->away_until = steps + (uint64_t{16} << order_.below(8));  // as if its time slice were over
  }
  hand_over(*next, at);
}

void Simulation::count_step() {
  ++steps;
  check_steps();
}

void Simulation::check_steps() {
  if (abandoned_.load(std::memory_order_acquire)) stay();
  if (steps <= options_.steps_max) return;
  fail("more than " + std::to_string(options_.steps_max) + " steps: a livelock, or steps_max is too low");
}

void Simulation::let_others_run(const char* at) {
  count_step();
  if (by_strategy()) return give_way_by_strategy(at);
  disturb();
  if (Actor* const next = pick(current_)) {
    idle_rounds_ = 0;
    hand_over(*next, at);
    return;
  }
  // Longer each time: whoever looks again and again comes to any deadline in some hundred rounds. At most so
  // long that the few turns of one who does much in between are no hang.
  const Duration longer{int64_t{1000} << std::min<uint64_t>(idle_rounds_++, 14)};
  skip_to(std::min(earliest(), now() + longer));
}

void Simulation::sleep(const seam::Sleep& how) {
  // Beside one that sleeps until a time, time passes for who gives way.
  if (how.until != TimePoint::max()) seam::notice(how.at, &kTime);
  count_step();
  idle_rounds_ = 0;  // who waits at a seam does not look again and again
  Actor& me = *current_;
  me.state = Actor::kAsleep;
  me.sleep = how;
  disturb();
  Actor& next = next_ready();
  if (&next != &me) hand_over(next, how.at);
}

void Simulation::wake(const void* key, int sleepers, const char* at) {
  seam::notice(at, key);
  if (memory != nullptr) memory->wake(key);
  wake(key, sleepers);
  seam::pass(at);
}

// Which ones, if not all, the seed says: so may the system.
void Simulation::wake(const void* key, int sleepers) {
  const auto sleeps = [&](const Actor* each) {
    return each->state == Actor::kAsleep && each->sleep.key == key;
  };
  auto there = static_cast<uint64_t>(std::count_if(living_.begin(), living_.end(), sleeps));
  auto wanted = std::min(there, static_cast<uint64_t>(sleepers));
  // Of `there` that are left, a strategy skips all but `wanted`.
  const auto skips = [&] {
    return armed_ && by_strategy() ? options_.strategy->among(2) == 1 : order_.below(there) >= wanted;
  };
  for (Actor* const each : living_) {
    if (wanted == 0) break;
    if (!sleeps(each)) continue;
    if (wanted == there || !skips()) {
      each->state = Actor::kReady;
      --wanted;
    }
    --there;
  }
}

Duration Simulation::cpu_time() const {
  return kStep * static_cast<Duration::rep>(current_->cpu_steps + (steps - runs_since_));
}

seam::NewThread Simulation::announce(std::string name) {
  Actor& made = actors_.emplace_back();
  made.number = static_cast<uint32_t>(actors_.size());
  made.name = std::move(name);
  living_.push_back(&made);
  const uint32_t parent = current_ == nullptr ? made.number : current_->number;
  if (memory_ != nullptr) memory_->start(parent, made.number);
  if (pasts_ != nullptr) pasts_->start(parent, made.number);
  return {this, &made, made.number};
}

void Simulation::withdraw(uint32_t number) {
  Actor& never = actors_[number - 1];
  never.state = Actor::kEnded;
  std::erase(living_, &never);
}

void Simulation::run(const seam::NewThread& thread, const std::function<void()>& body) {
  thread_local LastOfThread last;
  Actor& me = *static_cast<Actor*>(thread.actor);  // not by its number: others run until it has the baton
  me.baton.take();
  last.of = this;
  seam::beat = this;
  try {
    body();
  } catch (const std::exception& error) {
    fail("an exception left " + name_of(me) + ": " + error.what());
  } catch (...) {
    fail("an exception left " + name_of(me));
  }
}

void Simulation::join(uint32_t number) {
  const Actor& other = actors_[number - 1];
  seam::step("join");
  while (other.state != Actor::kEnded) sleep({.key = &other, .at = "join", .holder = number});
  if (memory_ != nullptr) memory_->join(current_->number, number);
  if (pasts_ != nullptr) pasts_->join(current_->number, number);
}

void Simulation::end_thread() {
  Actor& me = *current_;
  seam::step("end");
  me.state = Actor::kEnded;
  wake(&me, seam::kAll);
  me.at = "end";
  std::erase(living_, &me);
  if (living_.empty()) return over_.give();
  count_step();
  Actor& next = next_ready();
  record(me.number, next.number, "end");
  goes_on(next);
  runs_since_ = steps;
  seam::beat = nullptr;
  next.baton.give();
}

// Who is late, woken for nothing, or kept from a core, is ready at once and looks again.
void Simulation::disturb() {
  expire();
  if (stalls_ != 0 && order_.below(stalls_) == 0) {
    const TimePoint next = earliest();
    if (next != TimePoint::max() && next - now() <= options_.stall_max) skip_to(next);
  }
  if (no_reasons_ != 0 && order_.below(no_reasons_) == 0) {
    Actor& one = *living_[order_.below(living_.size())];
    if (one.state == Actor::kAsleep && &one != current_) {
      one.state = Actor::kReady;
      record(one.number, one.number, "no reason");
    }
  }
}

void Simulation::expire() {
  for (Actor* const each : living_) {
    if (each->state == Actor::kAsleep && each->sleep.until <= now()) each->state = Actor::kReady;
  }
}

void Simulation::skip_to(TimePoint when) {
  skipped_ += std::max(when - now(), Duration(0));
  if (pasts_ != nullptr) pasts_->jump(&kTime);
  record(current_->number, current_->number, "time jumps");
  expire();
}

TimePoint Simulation::earliest() const {
  TimePoint first = TimePoint::max();
  for (const Actor* const each : living_) {
    if (each->state == Actor::kAsleep) first = std::min(first, each->sleep.until);
  }
  return first;
}

// Any but `but` that could run, at random; one that is away if no other can.
Simulation::Actor* Simulation::pick(const Actor* but) {
  const auto ready = [&](const Actor* each) { return each->state == Actor::kReady && each != but; };
  const auto here = [&](const Actor* each) { return ready(each) && !stays_away(*each); };
  auto there = static_cast<uint64_t>(std::count_if(living_.begin(), living_.end(), here));
  const bool all = there == 0;
  if (all) there = static_cast<uint64_t>(std::count_if(living_.begin(), living_.end(), ready));
  if (there == 0) return nullptr;
  for (;;) {
    uint64_t skip = order_.below(there);
    for (Actor* const each : living_) {
      if (!(all ? ready(each) : here(each)) || skip-- != 0) continue;
      if (each->number != slow_ || there == 1 || order_.below(8) == 0) return each;
      break;
    }
  }
}

Simulation::Actor& Simulation::next_ready() {
  if (by_strategy()) {
    std::vector<uint32_t> ready = others_ready();
    if (!ready.empty()) return choose(ready, {.free = ready.size()});
  }
  if (Actor* const next = pick(nullptr)) return *next;
  const TimePoint next = earliest();
  if (next == TimePoint::max()) fail("deadlock: every thread waits for another one, and none has a deadline");
  skip_to(next);
  if (!by_strategy()) return *pick(nullptr);
  // Of those whose deadline that was.
  std::vector<uint32_t> late = others_ready();
  if (current_->state == Actor::kReady) late.insert(late.begin(), current_->number);
  return choose(late, {.free = late.size()});
}

void Simulation::hand_over(Actor& next, const char* at) {
  Actor& me = *current_;
  me.at = at;
  me.cpu_steps += steps - runs_since_;
  runs_since_ = steps;
  ++hand_overs_;
  record(me.number, next.number, at);
  goes_on(next);
  next.baton.give();
  me.baton.take();
}

void Simulation::goes_on(Actor& next) {
  current_ = &next;
  owes = false;
  if (memory_ != nullptr) memory_->run(next.number);
  if (pasts_ != nullptr) pasts_->run(next.number);
}

void Simulation::record(uint32_t from, uint32_t to, const char* at) {
  fingerprint_ = SeededNumbers(fingerprint_ ^ (steps << 16) ^ (uint64_t{from} << 8) ^ to).next();
  const Decision decision{steps, from, to, at};
  if (trace_.size() < options_.trace_max) {
    trace_.push_back(decision);
  } else if (options_.trace_max != 0) {
    trace_[decisions_ % options_.trace_max] = decision;
  }
  ++decisions_;
}

std::string Simulation::name_of(const Actor& actor) {
  return "'" + actor.name + "' (" + std::to_string(actor.number) + ")";
}

std::string Simulation::describe(const Actor& actor) const {
  std::string out = "  " + name_of(actor);
  if (&actor == current_ && actor.state == Actor::kReady) return out + " runs\n";
  if (actor.state == Actor::kReady) return out + " could run, at " + actor.at + "\n";
  if (actor.state == Actor::kEnded) return out + " has ended\n";
  out += std::string(" waits: ") + actor.sleep.at;
  if (actor.sleep.what != nullptr) out += std::string(" of rank '") + actor.sleep.what + "'";
  if (actor.sleep.holder != 0) out += ", for " + name_of(actors_[actor.sleep.holder - 1]);
  return out + "\n";
}

std::string Simulation::describe(const std::string& why) const {
  std::string out =
      by_strategy() ? "schedule " + options_.strategy->describe() : "seed " + std::to_string(seed_);
  out += ", step " + std::to_string(steps) + ": " + why + "\n";
  for (const Actor& actor : actors_) out += describe(actor);
  const size_t kept = trace_.size();
  out += "the last " + std::to_string(kept) + " of " + std::to_string(decisions_) + " decisions:\n";
  for (size_t i = 0; i < kept; ++i) {
    const Decision& each = trace_[(decisions_ + i) % kept];
    out += "  step " + std::to_string(each.step) + ": " + name_of(actors_[each.from - 1]) + " at " + each.at;
    if (each.from != each.to) out += " -> " + name_of(actors_[each.to - 1]);
    out += "\n";
  }
  return out;
}

SimulationReport simulate(uint64_t seed, const std::function<void(Simulation&)>& body,
                          const SimulationOptions& options) {
  auto simulation = std::make_unique<Simulation>(seed, options);
  Simulation& all = *simulation;
  const seam::NewThread first = all.announce("body");
  all.current_ = &all.actors_.front();
  all.current_->baton.give();
  std::thread runs_first([&all, &body, first] {
    stay_on_this_core();
    all.run(first, [&] { body(all); });
  });
  SimulationReport report;
  report.seed = seed;
  if (!all.over_.take_within(options.patience)) {
    all.abandoned_.store(true, std::memory_order_release);
    // Read beside that thread, which as a rule stands still.
    all.failure_ = all.describe("the running thread has not come to a seam: it blocks natively");
  }
  report.failure = all.failure_;
  report.steps = all.steps;
  report.hand_overs = all.hand_overs_;
  report.fingerprint = all.fingerprint_;
  if (report.ok() && all.pasts_ != nullptr) report.past = all.pasts_->all();
  report.told = std::move(all.told_);
  report.took = all.now() - TimePoint(std::chrono::hours(1));
  if (report.ok()) {
    runs_first.join();
  } else {
    // Handlers of exit() would wait for what they hold: the last handler that is set comes first.
    static_cast<void>(on_exit(
        [](int status, void*) {
          static_cast<void>(std::fflush(nullptr));
          _exit(status);
        },
        nullptr));
    // its threads stand where they are for good, and so does what they use
    new std::thread(std::move(runs_first));
    static_cast<void>(simulation.release());
  }
  return report;
}

namespace seam {

void decide(const char* at, const void* word) { Simulation::current()->decide(at, word); }
void decide_owed(const char* at, const void* word) { Simulation::current()->decide_owed(at, word); }
void let_others_run(const char* at) { Simulation::current()->let_others_run(at); }
void sleep(const Sleep& how) { Simulation::current()->sleep(how); }
void wake(const void* key, int sleepers, const char* at) { Simulation::current()->wake(key, sleepers, at); }
TimePoint now() {
  pass("clock", kAtomic);
  return Simulation::current()->look_at_clock();
}
std::chrono::nanoseconds cpu_time() { return Simulation::current()->cpu_time(); }
uint64_t seed() { return simulated() ? Simulation::current()->seed() : 0; }
uint32_t thread_number() { return Simulation::current()->thread_number(); }
uint64_t serial() { return Simulation::current()->serial(); }
void tell(const char* step, int64_t value) { Simulation::current()->tell(step, value); }
NewThread announce(std::string name) { return Simulation::current()->announce(std::move(name)); }
void withdraw(const NewThread& thread) { Simulation::current()->withdraw(thread.number); }
void run(const NewThread& thread, const std::function<void()>& body) {
  static_cast<Simulation*>(thread.simulation)->run(thread, body);
}
void join(uint32_t number) { Simulation::current()->join(number); }
void fail(const std::string& why) { Simulation::current()->fail(why); }

}  // namespace seam

}  // namespace heddle

#endif
