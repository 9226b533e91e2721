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

// The state of the one loop that helpers may join, in one word: a thread that takes a chunk proves, by the
// same compare-and-swap, that the loop whose body it has read is still the loop of the word.
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

}  // namespace

struct Team::State {
  using Body = void (*)(void*, int);

  alignas(64) Atomic<int> callers{0};      // a hint: callers inside; helpers work only while it is 1
  Atomic<TimePoint> company{TimePoint()};  // a hint: when two callers were last inside
  alignas(64) Atomic<uint64_t> cursor{0};  // a Cursor; opening it publishes body and context
  Atomic<Body> body{nullptr};              // of the open loop; written while the cursor is closed
  Atomic<void*> context{nullptr};          // likewise
  Atomic<bool> owned{false};         // a loop is open or being closed; its caller owns body, context and done
  alignas(64) Atomic<int> done{0};   // chunks that helpers have finished; publishes what they wrote
  Atomic<bool> owner_parked{false};  // the owner may sleep; seq_cst against done
  Atomic<int> parked{0};             // helpers that may sleep; seq_cst against cursor
  Guarded<Sleep, Rank::kHelpers> sleep;
  Guarded<Finish, Rank::kHelpers> finish;
  std::vector<CoreAffinity> affinities;  // of the helpers
  std::vector<Thread> helpers;           // last: they use all of the above

  bool work_open() const { return callers.load_relaxed() == 1 && Cursor::from(cursor.load_seq_cst()).open(); }
  // The next chunk, or -1. Body and context are those of its loop.
  int take(Body& loop_body, void*& loop_context);
  int help();  // chunks it ran
  void helper(CoreAffinity& affinity);
  void finish_chunks(int count);
  void wait_for_helpers(int count);
};

int Team::State::take(Body& loop_body, void*& loop_context) {
  uint64_t word = cursor.load_acquire();
  for (;;) {
    Cursor now = Cursor::from(word);
    if (!now.open()) return -1;
    loop_body = body.load_relaxed();
    loop_context = context.load_relaxed();
    const int chunk = now.next++;
    if (cursor.cas_weak_acq_rel(word, now.word())) return chunk;
  }
}

void Team::State::finish_chunks(int count) {
  done.add_seq_cst(count);  // pairs with wait_for_helpers()
  if (!owner_parked.load_seq_cst()) return;
  static_cast<void>(finish.lock());  // the owner that read the old count holds the lock until it sleeps
  finish.notify_all();
}

int Team::State::help() {
  int ran = 0;
  Body loop_body = nullptr;
  void* loop_context = nullptr;
  while (callers.load_relaxed() == 1) {
    const int chunk = take(loop_body, loop_context);
    if (chunk < 0) break;
    loop_body(loop_context, chunk);
    finish_chunks(1);
    ++ran;
  }
  return ran;
}

void Team::State::helper(CoreAffinity& affinity) {
  const OmpScope team_of_one;
  affinity.settle();
  for (;;) {
    for (int burst = 0; burst < kIdleBursts && callers.load_relaxed() <= 1; ++burst) {
      Backoff pause;
      do {
        if (help() > 0) burst = 0;
      } while (pause.spin());
      give_way();
    }
    auto held = sleep.lock();
    parked.add_seq_cst(1);  // before work_open() reads the cursor: pairs with run()
    held.wait([&] { return held->stop || work_open(); });
    parked.sub_relaxed(1);
    if (held->stop) return;
  }
}

void Team::State::wait_for_helpers(int count) {
  for (Backoff pause; pause.spin();) {
    if (done.load_acquire() == count) return;
  }
  auto held = finish.lock();
  owner_parked.store_seq_cst(true);  // before the predicate reads done: pairs with finish_chunks()
  held.wait([&] { return done.load_seq_cst() == count; });
  owner_parked.store_seq_cst(false);
}

Team::Team(int width, const Clock& clock)
    : width_(std::max(width, 1)), clock_(&clock), state_(std::make_unique<State>()) {
  state_->affinities = std::vector<CoreAffinity>(static_cast<size_t>(width_ - 1));
  for (CoreAffinity& affinity : state_->affinities) {
    state_->helpers.emplace_back("heddle-helper",
                                 [state = state_.get(), &affinity] { state->helper(affinity); });
  }
}

Team::~Team() {
  state_->sleep.lock()->stop = true;
  state_->sleep.notify_all();
}

Team::Caller::Caller(Team& team, bool brief) : team_(team), brief_(brief) {
  if (brief_) return;
  if (team_.state_->callers.add_relaxed(1) > 0) team_.state_->company.store_relaxed(team_.clock_->now());
}

Team::Caller::~Caller() {
  if (brief_) return;
  if (team_.state_->callers.sub_relaxed(1) > 1) team_.state_->company.store_relaxed(team_.clock_->now());
}

int Team::Caller::share() const {
  if (brief_) return 1;
  const State& state = *team_.state_;
  quiet_ = state.callers.load_relaxed() == 1 &&
           (quiet_ || team_.clock_->now() - state.company.load_relaxed() >= kQuiet);
  return quiet_ ? team_.width_ : 1;
}

void Team::Caller::run(int chunks, void (*body)(void*, int), void* context) {
  State& state = *team_.state_;
  bool expected = false;
  // Not owned: two callers may each have seen themselves alone for a moment; one of them then works alone.
  if (chunks < 2 || chunks > Cursor::kMaxChunks || share() == 1 ||
      !state.owned.cas_strong_acq_rel(expected, true)) {
    for (int chunk = 0; chunk < chunks; ++chunk) body(context, chunk);
    return;
  }
  state.body.store_relaxed(body);
  state.context.store_relaxed(context);
  state.done.store_relaxed(0);
  Cursor now = Cursor::from(state.cursor.load_relaxed());
  now = {now.loop + 1, static_cast<uint16_t>(chunks), 0};
  state.cursor.store_seq_cst(now.word());  // pairs with take(), and with the parking helper
  const int core = this_core();
  for (CoreAffinity& affinity : state.affinities) affinity.keep_off(core);
  if (const int asleep = state.parked.load_seq_cst(); asleep > 0) {
    static_cast<void>(state.sleep.lock());  // a helper that saw the old cursor holds the lock until it sleeps
    for (int i = 0; i < std::min(asleep, chunks - 1); ++i) state.sleep.notify_one();
  }
  int mine = 0;
  for (int chunk; (chunk = state.take(body, context)) >= 0; ++mine) body(context, chunk);
  if (mine != chunks) state.wait_for_helpers(chunks - mine);
  state.owned.store_release(false);
}

}  // namespace heddle::host
