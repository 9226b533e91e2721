#include "drivers/host/machine/team.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/atomic.h"
#include "base/sync.h"
#include "base/thread.h"
#include "base/yield.h"
#include "drivers/host/machine/core_affinity.h"
#include "drivers/host/onednn/omp_scope.h"

namespace heddle::host {
namespace {

// The state of a loop that helpers may join, in one word: a thread that takes a chunk proves, by the same
// compare-and-swap, that the loop whose body it has read is still the loop of the word.
struct Cursor {
  static constexpr int kMaxChunks = 0xffff;
  uint32_t loop;    // which loop; wraps after 2^32 of them
  uint16_t chunks;  // of that loop
  uint16_t next;    // first one not taken

  static Cursor from(uint64_t word) {
    return {static_cast<uint32_t>(word >> 32), static_cast<uint16_t>(word >> 16),
            static_cast<uint16_t>(word)};
  }
  uint64_t word() const { return uint64_t{loop} << 32 | uint64_t{chunks} << 16 | next; }
  bool open() const { return next < chunks; }
};

// Bursts of Backoff before an idle helper parks: about thirty microseconds, the gap between two loops of one
// model.
constexpr int kIdleBursts = 8;

struct Sleep {
  bool stop = false;
};
struct Finish {};

using Body = void (*)(void*, int);

// Where one caller's loop stands, one loop after the other.
struct alignas(64) Loop {
  Atomic<uint64_t> cursor{0};        // a Cursor; opening it publishes body and context
  Atomic<Body> body{nullptr};        // of the open loop; written while the cursor is closed
  Atomic<void*> context{nullptr};    // likewise
  Atomic<bool> owned{false};         // a loop is open or being closed; its caller owns body, context and done
  alignas(64) Atomic<int> done{0};   // chunks that helpers have finished; publishes what they wrote
  Atomic<bool> owner_parked{false};  // the owner may sleep; seq_cst against done

  bool open() const { return Cursor::from(cursor.load_seq_cst()).open(); }
  // The next chunk, or -1. Body and context are those of its loop.
  int take(Body& its_body, void*& its_context) {
    uint64_t word = cursor.load_acquire();
    for (;;) {
      Cursor now = Cursor::from(word);
      if (!now.open()) return -1;
      its_body = body.load_relaxed();
      its_context = context.load_relaxed();
      const int chunk = now.next++;
      if (cursor.cas_weak_acq_rel(word, now.word())) return chunk;
    }
  }
};

}  // namespace

struct Team::State {
  explicit State(int threads, const Nodes* their_nodes)
      : width(threads), nodes(their_nodes), loops(static_cast<size_t>(std::max(1, threads / 2))) {}

  const int width;
  const Nodes* const nodes;
  alignas(64) Atomic<int> callers{0};          // a hint: callers inside
  Atomic<int> together{1};                     // a hint: the most callers inside of late
  Atomic<TimePoint> together_at{TimePoint()};  // a hint: when as many were last inside
  alignas(64) Atomic<int> helping{0};          // helpers at work, where more than one caller is inside
  Atomic<int> parked{0};                       // helpers that may sleep; seq_cst against the cursors
  std::vector<Loop> loops;                     // a caller that shares has one
  Guarded<Sleep, Rank::kHelpers> sleep;
  Guarded<Finish, Rank::kHelpers> finish;
  std::vector<CoreAffinity> affinities;  // of the helpers
  std::vector<Thread> helpers;           // last: they use all of the above

  bool has_room(int helpers_now) const { return callers.load_relaxed() + helpers_now <= width; }
  bool work_open() const {
    return has_room(helping.load_relaxed() + 1) &&
           std::any_of(loops.begin(), loops.end(), [](const Loop& loop) { return loop.open(); });
  }
  Loop* open_loop(size_t first);
  Loop* own_loop();
  template <class Go>
  int take_chunks(Loop& loop, Go may_go_on);  // how many it ran
  int help(size_t self);                      // likewise
  void helper(size_t self);
  void finish_chunk(Loop& loop);
  void wait_for_helpers(Loop& loop, int count);
};

// Helpers begin at loops of their own, so that they spread over those that are open.
Loop* Team::State::open_loop(size_t first) {
  size_t open = 0;
  for (const Loop& loop : loops) open += loop.open() ? 1 : 0;
  if (open == 0) return nullptr;
  size_t skip = first % open;
  for (Loop& loop : loops) {
    if (loop.open() && skip-- == 0) return &loop;
  }
  return nullptr;
}

// Null: as many callers share already, each with one.
Loop* Team::State::own_loop() {
  for (Loop& loop : loops) {
    bool owned = loop.owned.load_relaxed();
    if (!owned && loop.owned.cas_strong_acq_rel(owned, true)) return &loop;
  }
  return nullptr;
}

void Team::State::finish_chunk(Loop& loop) {
  loop.done.add_seq_cst(1);  // pairs with wait_for_helpers()
  if (!loop.owner_parked.load_seq_cst()) return;
  static_cast<void>(finish.lock());  // the owner that read the old count holds the lock until it sleeps
  finish.notify_all();
}

template <class Go>
int Team::State::take_chunks(Loop& loop, Go may_go_on) {
  Body body = nullptr;
  void* context = nullptr;
  int ran = 0;
  for (int chunk; may_go_on() && (chunk = loop.take(body, context)) >= 0; ++ran) {
    body(context, chunk);
    finish_chunk(loop);
  }
  return ran;
}

// Beside one caller there is room for all helpers: they do not count themselves, which would be a line that
// all of them write, several times a loop. One that is at it when a second caller comes leaves at its next
// chunk.
int Team::State::help(size_t self) {
  int ran = 0;
  for (Loop* loop; (loop = open_loop(self)) != nullptr;) {
    const bool counted = callers.load_relaxed() > 1;
    if (counted && !has_room(helping.add_acq_rel(1) + 1)) {
      helping.sub_relaxed(1);
      return ran;
    }
    const auto may_go_on = [&] {
      return counted ? has_room(helping.load_relaxed()) : callers.load_relaxed() <= 1;
    };
    const OnNode here(nodes);
    ran += take_chunks(*loop, may_go_on);
    if (!counted) continue;
    helping.sub_relaxed(1);
    // Of two too many, both may have left.
    if (!has_room(helping.load_relaxed() + 1)) return ran;
  }
  return ran;
}

void Team::State::helper(size_t self) {
  const OmpScope team_of_one;
  affinities[self].settle();
  for (;;) {
    for (int burst = 0; burst < kIdleBursts && 2 * callers.load_relaxed() <= width; ++burst) {
      Backoff pause;
      do {
        if (help(self) > 0) burst = 0;
      } while (pause.spin());
      give_way();
    }
    auto held = sleep.lock();
    parked.add_seq_cst(1);  // before work_open() reads the cursors: pairs with run()
    held.wait([&] { return held->stop || work_open(); });
    parked.sub_relaxed(1);
    if (held->stop) return;
  }
}

void Team::State::wait_for_helpers(Loop& loop, int count) {
  for (Backoff pause; pause.spin();) {
    if (loop.done.load_acquire() == count) return;
  }
  auto held = finish.lock();
  loop.owner_parked.store_seq_cst(true);  // before the predicate reads done: pairs with finish_chunk()
  held.wait([&] { return loop.done.load_seq_cst() == count; });
  loop.owner_parked.store_seq_cst(false);
}

Team::Team(int width, const Clock& clock, const Nodes* nodes)
    : width_(std::max(width, 1)),
      clock_(&clock),
      nodes_(nodes),
      state_(std::make_unique<State>(width_, nodes)) {
  state_->affinities = std::vector<CoreAffinity>(static_cast<size_t>(width_ - 1));
  for (size_t self = 0; self < state_->affinities.size(); ++self)
    state_->helpers.emplace_back("heddle-helper", [state = state_.get(), self] { state->helper(self); });
}

Team::~Team() {
  state_->sleep.lock()->stop = true;
  state_->sleep.notify_all();
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
  const int threads = chunks < 2 || chunks > Cursor::kMaxChunks ? 1 : std::min(share(), chunks);
  Loop* const loop = threads == 1 ? nullptr : state.own_loop();
  if (loop == nullptr) {
    for (int chunk = 0; chunk < chunks; ++chunk) body(context, chunk);
    return;
  }
  loop->body.store_relaxed(body);
  loop->context.store_relaxed(context);
  loop->done.store_relaxed(0);
  Cursor now = Cursor::from(loop->cursor.load_relaxed());
  now = {now.loop + 1, static_cast<uint16_t>(chunks), 0};
  loop->cursor.store_seq_cst(now.word());  // pairs with take(), and with the parking helper
  if (threads == team_.width_) {
    const int core = this_core();
    for (CoreAffinity& affinity : state.affinities) affinity.keep_off(core);
  }
  if (const int asleep = state.parked.load_seq_cst(); asleep > 0) {
    static_cast<void>(state.sleep.lock());  // a helper that saw the old cursor holds the lock until it sleeps
    for (int i = 0; i < std::min(asleep, threads - 1); ++i) state.sleep.notify_one();
  }
  int mine = 0;
  for (int chunk; (chunk = loop->take(body, context)) >= 0; ++mine) body(context, chunk);
  if (mine != chunks) state.wait_for_helpers(*loop, chunks - mine);
  loop->owned.store_release(false);
}

}  // namespace heddle::host
