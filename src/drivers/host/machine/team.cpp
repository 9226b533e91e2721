#include "drivers/host/machine/team.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/atomic.h"
#include "base/parker.h"
#include "base/sync.h"
#include "base/thread.h"
#include "base/yield.h"
#include "drivers/host/machine/core_affinity.h"
#include "drivers/host/machine/shared_loop.h"
#include "drivers/host/onednn/omp_scope.h"

namespace heddle::host {
namespace {

// How long an idle helper looks for a loop before it parks: a hundred microseconds at most, since the next
// loop of a model comes after a few. Callers that were just told a result wait for its core meanwhile.
constexpr int kIdlePauses = 128, kPause = 8, kPausesBeforeYield = 2;
constexpr int kWakesEach = 4;  // helpers that a thread wakes before it works: each of them wakes as many
constexpr uint32_t kWork = 1, kStop = 2;

struct Finish {};

// The chunks that a helper has run of one loop: its number above, their count below.
uint64_t ran_word(uint32_t loop, int chunks) { return uint64_t{loop} << 32 | static_cast<uint32_t>(chunks); }
int ran_of(uint64_t word, uint32_t loop) {
  return static_cast<uint32_t>(word >> 32) == loop ? static_cast<int>(static_cast<uint32_t>(word)) : 0;
}

struct CallersLoop {
  explicit CallersLoop(int most_places) : loop(most_places) {}
  SharedLoop loop;
  alignas(64) Atomic<bool> owner_parked{false};  // the owner may sleep; seq_cst against Helper::ran
};

struct alignas(64) Helper {
  explicit Helper(size_t loops) : ran(loops), over(loops) {}
  std::vector<Atomic<uint64_t>> ran;  // by loop; publishes what its chunks wrote. Only the helper writes it
  std::vector<uint32_t> over;  // by loop: the number in which it found no more chunks. The helper's own
  CoreAffinity affinity;
  alignas(64) Atomic<bool> parked{false};  // it may sleep; seq_cst against the loops. Who clears it wakes it
  Parker parker;
};

}  // namespace

struct Team::State {
  State(int threads, const Nodes* their_nodes);

  const int width;
  const Nodes* const nodes;
  const CoreNumbers cores;
  alignas(64) Atomic<int> callers{0};               // a hint: callers inside
  Atomic<int> together{1};                          // a hint: the most callers inside of late
  Atomic<TimePoint> together_at{TimePoint()};       // a hint: when as many were last inside
  alignas(64) Atomic<int> parked{0};                // helpers that are, counted before their own word says so
  std::vector<std::unique_ptr<CallersLoop>> loops;  // a caller that shares has one
  std::vector<std::unique_ptr<Helper>> helpers;
  Guarded<Finish, Rank::kHelpers> finish;
  std::vector<Thread> threads;  // last: they use all of the above

  // Callers inside take the places of the helpers with the highest numbers.
  bool may_help(size_t self) const { return static_cast<int>(self) + 1 + callers.load_relaxed() <= width; }
  std::optional<size_t> own_loop();
  size_t home(size_t self) const;
  template <class Found>
  bool find_open(size_t self, Found&& found);
  bool has_work(size_t self);
  bool help(size_t self);
  bool help_in(size_t self, size_t index, const SharedLoop::Opened& opened);
  void helper(size_t self);
  bool park(size_t self);
  void wake(int count);
  bool ran_all(size_t index, uint32_t number, int count) const;
  void wait_for_helpers(size_t index, uint32_t number, int count);
};

Team::State::State(int threads_in_all, const Nodes* their_nodes) : width(threads_in_all), nodes(their_nodes) {
  const auto most_loops = static_cast<size_t>(std::max(1, width / 2));
  for (size_t i = 0; i < most_loops; ++i) loops.push_back(std::make_unique<CallersLoop>(width));
  for (int i = 1; i < width; ++i) helpers.push_back(std::make_unique<Helper>(most_loops));
}

// None: as many callers share already, each with one.
std::optional<size_t> Team::State::own_loop() {
  for (size_t index = 0; index < loops.size(); ++index) {
    if (loops[index]->loop.own()) return index;
  }
  return std::nullopt;
}

// Neighbours help the same caller, so that its loop is divided over cores with other numbers.
size_t Team::State::home(size_t self) const {
  const auto inside = static_cast<size_t>(std::clamp(callers.load_relaxed(), 1, width - 1));
  return self * inside / (static_cast<size_t>(width) - inside) % loops.size();
}

// Calls found(index, opened) with loops that may have chunks for this helper, its home first, until it
// answers true.
template <class Found>
bool Team::State::find_open(size_t self, Found&& found) {
  for (size_t i = 0, index = home(self); i < loops.size(); ++i, index = (index + 1) % loops.size()) {
    const SharedLoop::Opened opened = loops[index]->loop.now();
    if (opened.open() && helpers[self]->over[index] != opened.number && found(index, opened)) return true;
  }
  return false;
}

bool Team::State::has_work(size_t self) {
  return may_help(self) && find_open(self, [](size_t, const SharedLoop::Opened&) { return true; });
}

// True: it ran a chunk.
bool Team::State::help(size_t self) {
  return may_help(self) && find_open(self, [&](size_t index, const SharedLoop::Opened& opened) {
           return help_in(self, index, opened);
         });
}

bool Team::State::help_in(size_t self, size_t index, const SharedLoop::Opened& opened) {
  Helper& me = *helpers[self];
  CallersLoop& its = *loops[index];
  const OnNode here(nodes);
  const int place = cores.of_this_thread(static_cast<int>(self) + 1);
  Atomic<uint64_t>& ran = me.ran[index];  // it may have left this loop before, and come back
  int count = ran_of(ran.load_relaxed(), opened.number);
  const int before = count;
  for (SharedLoop::Chunk chunk; may_help(self);) {
    if (!its.loop.take(opened, place, chunk)) {
      me.over[index] = opened.number;
      break;
    }
    chunk.body(chunk.context, chunk.index);
    ran.store_seq_cst(ran_word(opened.number, ++count));  // pairs with wait_for_helpers()
    if (!its.owner_parked.load_seq_cst()) continue;
    static_cast<void>(finish.lock());  // the owner that read the old count holds the lock until it sleeps
    finish.notify_all();
  }
  return count > before;
}

void Team::State::helper(size_t self) {
  const OmpScope team_of_one;
  helpers[self]->affinity.settle();
  for (;;) {
    for (int pauses = 0; pauses < kIdlePauses && 2 * callers.load_relaxed() <= width; ++pauses) {
      while (help(self)) pauses = 0;
      relax_processor(kPause);
      if (pauses % kPausesBeforeYield == 0) give_way();
    }
    if (!park(self)) return;
  }
}

// False: the team ends.
bool Team::State::park(size_t self) {
  Helper& me = *helpers[self];
  parked.add_seq_cst(1);
  me.parked.store_seq_cst(true);  // both before has_work() reads the loops: pairs with run()
  if (has_work(self) && me.parked.exchange_acq_rel(false)) {
    parked.sub_relaxed(1);
    return true;
  }
  const uint32_t told = me.parker.wait(Deadline::never());
  me.parker.take(kWork);
  find_open(self, [&](size_t, const SharedLoop::Opened& opened) {
    if (opened.places > 1 + kWakesEach) wake(kWakesEach);
    return true;
  });
  return (told & kStop) == 0;
}

// Helpers that may work and sleep.
void Team::State::wake(int count) {
  for (size_t i = 0; i < helpers.size() && count > 0 && parked.load_relaxed() > 0; ++i) {
    Helper& each = *helpers[i];
    if (!may_help(i)) return;
    if (!each.parked.load_seq_cst() || !each.parked.exchange_acq_rel(false)) continue;
    parked.sub_relaxed(1);
    each.parker.tell(kWork);
    --count;
  }
}

bool Team::State::ran_all(size_t index, uint32_t number, int count) const {
  for (const auto& each : helpers) count -= ran_of(each->ran[index].load_seq_cst(), number);
  return count == 0;
}

void Team::State::wait_for_helpers(size_t index, uint32_t number, int count) {
  for (Backoff pause; pause.spin();) {
    if (ran_all(index, number, count)) return;
  }
  Atomic<bool>& owner_parked = loops[index]->owner_parked;
  auto held = finish.lock();
  owner_parked.store_seq_cst(true);  // before the predicate reads: pairs with help_in()
  held.wait([&] { return ran_all(index, number, count); });
  owner_parked.store_seq_cst(false);
}

Team::Team(int width, const Clock& clock, const Nodes* nodes)
    : width_(std::max(width, 1)),
      clock_(&clock),
      nodes_(nodes),
      state_(std::make_unique<State>(width_, nodes)) {
  for (size_t self = 0; self < state_->helpers.size(); ++self)
    state_->threads.emplace_back("heddle-helper", [state = state_.get(), self] { state->helper(self); });
}

Team::~Team() {
  for (const auto& helper : state_->helpers) helper->parker.tell(kStop);
}

Team::Caller::Caller(Team& team, bool brief) : team_(team), brief_(brief) {
  if (brief_) return;
  State& state = *team_.state_;
  const int inside = state.callers.add_relaxed(1) + 1;
  if (inside == 1 || inside < state.together.load_relaxed()) return;
  state.together.store_relaxed(inside);
  state.together_at.store_relaxed(team_.clock_->now());
}

Team::Caller::~Caller() {
  if (brief_) return;
  State& state = *team_.state_;
  const int inside = state.callers.sub_relaxed(1);
  if (inside > 1 && inside >= state.together.load_relaxed())
    state.together_at.store_relaxed(team_.clock_->now());
}

int Team::Caller::share() const {
  if (brief_) return 1;
  State& state = *team_.state_;
  const int inside = std::max(state.callers.load_relaxed(), 1);
  int together = std::max(state.together.load_relaxed(), inside);
  if (together > inside && team_.clock_->now() - state.together_at.load_relaxed() >= kQuiet)
    state.together.store_relaxed(together = inside);
  return std::max(1, team_.width_ / together);
}

void Team::Caller::run(int chunks, void (*body)(void*, int), void* context) {
  State& state = *team_.state_;
  const int threads = chunks < 2 || chunks > SharedLoop::kMaxChunks ? 1 : std::min(share(), chunks);
  const std::optional<size_t> index = threads == 1 ? std::nullopt : state.own_loop();
  if (!index) {
    for (int chunk = 0; chunk < chunks; ++chunk) body(context, chunk);
    return;
  }
  SharedLoop& loop = state.loops[*index]->loop;
  const SharedLoop::Opened opened = loop.open(body, context, chunks, threads);
  if (threads == team_.width_) {
    const int core = this_core();
    for (const auto& helper : state.helpers) helper->affinity.keep_off(core);
  }
  if (state.parked.load_seq_cst() > 0) state.wake(std::min(kWakesEach, threads - 1));
  const int place = state.cores.of_this_thread(0);
  int mine = 0;
  for (SharedLoop::Chunk chunk; loop.take(opened, place, chunk); ++mine) body(context, chunk.index);
  loop.close();
  if (mine != chunks) state.wait_for_helpers(*index, opened.number, chunks - mine);
  loop.disown();
}

}  // namespace heddle::host
