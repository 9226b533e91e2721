#include "base/spin_guarded.h"

#include <doctest/doctest.h>

#include <vector>

#include "base/thread.h"

namespace heddle {
namespace {

struct Sum {
  int64_t value = 0;
  int holders = 0;
};

TEST_CASE("spin guarded: eight threads that lock, or try to, lose no addition and are never two inside") {
  constexpr int kThreads = 8, kRounds = 2000;
  SpinGuarded<Sum, Rank::kPool> sum;
  Atomic<int> refused{0};
  Atomic<bool> alone{true};
  run_together(kThreads, [&](int thread) {
    for (int i = 0; i < kRounds; ++i) {
      const auto add = [&](Sum& held) {
        if (++held.holders != 1) alone.store_relaxed(false);
        held.value += thread + 1;
        --held.holders;
      };
      if (auto tried = sum.try_lock(); tried.has_value()) {
        add(**tried);
      } else {
        refused.add_relaxed(1);
        add(*sum.lock());
      }
    }
  });
  CHECK(alone.load_relaxed());
  CHECK(sum.lock()->value == int64_t{kRounds} * kThreads * (kThreads + 1) / 2);
  MESSAGE("refused ", refused.load_relaxed(), " times");
}

TEST_CASE("spin guarded: what is held is refused to others, and free again at the end of the hold") {
  SpinGuarded<Sum, Rank::kPool> sum;
  {
    const auto held = sum.lock();
    bool refused = false;
    run_together(1, [&](int) { refused = !sum.try_lock().has_value(); });
    CHECK(refused);
  }
  CHECK(sum.try_lock().has_value());
}

}  // namespace
}  // namespace heddle
