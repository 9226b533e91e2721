#include "base/read_epoch.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "base/sync.h"
#include "base/thread.h"

namespace heddle {
namespace {

TEST_CASE("a grace passes at once when no reader is inside") {
  ReadEpoch epoch;
  for (int i = 0; i < 5; ++i) {
    auto grace = epoch.begin();
    CHECK(epoch.passed(grace));
    CHECK(epoch.passed(grace));
  }
}

TEST_CASE("a reader inside holds a grace up until it leaves, whatever the parity it entered in") {
  ReadEpoch epoch;
  for (int parity = 0; parity < 4; ++parity) {
    auto grace = epoch.begin();
    {
      const auto inside = epoch.enter();
      CHECK(!epoch.passed(grace));
      CHECK(!epoch.passed(grace));
    }
    CHECK(epoch.passed(grace));
  }
}

TEST_CASE("readers that enter after the turn do not hold a grace up") {
  ReadEpoch epoch;
  std::unique_ptr<ReadEpoch::Section> old(new ReadEpoch::Section(epoch.enter()));
  auto grace = epoch.begin();
  CHECK(!epoch.passed(grace));  // turns the parity
  const auto later = epoch.enter();
  CHECK(!epoch.passed(grace));
  old.reset();
  CHECK(epoch.passed(grace));

  auto next = epoch.begin();
  CHECK(!epoch.passed(next));  // but they do hold up the next one
}

TEST_CASE("every entry of every thread is counted") {
  ReadEpoch epoch;
  run_together(40, [&](int) {  // more threads than stripes
    for (int i = 0; i < 1000; ++i) static_cast<void>(epoch.enter());
  });
  CHECK(epoch.entries() == 40 * 1000);
  auto grace = epoch.begin();
  CHECK(epoch.passed(grace));
}

TEST_CASE("what is destroyed after a grace was not being read") {
  constexpr int kWrites = 500;
  ReadEpoch epoch;
  Atomic<const std::vector<int>*> published(new std::vector<int>(16, 0));
  Atomic<bool> stop;
  Atomic<int> torn, reads;
  run_together(4, [&](int thread) {
    if (thread == 0) {
      for (int i = 1; i <= kWrites; ++i) {
        const auto* old = published.load_relaxed();
        published.store_seq_cst(new std::vector<int>(16, i));
        auto grace = epoch.begin();
        while (!epoch.passed(grace)) give_way();
        const_cast<std::vector<int>*>(old)->assign(16, -1);  // a reader still inside would see it
        delete old;
      }
      stop.store_release(true);
    } else {
      do {
        {
          const auto inside = epoch.enter();
          const std::vector<int>& seen = *published.load_seq_cst();
          for (const int x : seen) torn.add_relaxed(x < 0 || x != seen[0] ? 1 : 0);
          reads.add_relaxed(1);
        }
        give_way();  // outside: a reader that loses its core inside keeps the writer waiting for a time slice
      } while (!stop.load_acquire());
    }
  });
  CHECK(torn.load_relaxed() == 0);
  CHECK(reads.load_relaxed() >= 3);
  CHECK(*published.load_relaxed() == std::vector<int>(16, kWrites));
  delete published.load_relaxed();
}

}  // namespace
}  // namespace heddle
