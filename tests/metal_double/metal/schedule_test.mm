// The schedule: equal seeds, equal decisions.
#import <Metal/Metal.h>

#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "tests/metal_double/metal/queue.h"

using namespace heddle::metal_double;

namespace {

constexpr uint32_t kLongest = 1000;
using Decisions = std::vector<uint32_t>;

Decisions draw(Schedule& schedule, int count) {
  Decisions decisions;
  for (int i = 0; i < count; ++i) decisions.push_back(schedule.next_delay_us());
  return decisions;
}

// Of the first queues after seed(value): of the GPU's thread and of the handlers' thread in turn.
std::vector<Decisions> decisions_of(uint64_t value, int queues) {
  reset();
  set_longest_delay_us(kLongest);
  seed(value);
  std::vector<Decisions> all;
  for (int i = 0; i < queues; ++i) {
    QueueState state;
    all.push_back(draw(state.schedule, 200));
    all.push_back(draw(state.handler_schedule, 200));
  }
  reset();
  return all;
}

// How often the sequences agree when the second is shifted by `by`.
int agreements(const Decisions& a, const Decisions& b, size_t by) {
  int same = 0;
  for (size_t i = 0; i + by < b.size(); ++i) same += a[i] == b[i + by] && a[i] != 0 ? 1 : 0;
  return same;
}

}  // namespace

TEST_CASE("equal seeds give each queue equal decisions, whatever queues there were before") {
  const auto first = decisions_of(7, 4);
  const QueueState another;
  CHECK(decisions_of(7, 4) == first);
  CHECK(decisions_of(8, 4) != first);
}

TEST_CASE("queues and seeds have decisions of their own: no sequence is another one shifted") {
  std::vector<Decisions> all = decisions_of(7, 4);
  for (Decisions& each : decisions_of(8, 4)) all.push_back(std::move(each));
  for (size_t a = 0; a < all.size(); ++a) {
    for (size_t b = 0; b < all.size(); ++b) {
      for (size_t by = 0; by < 8 && a != b; ++by) CHECK(agreements(all[a], all[b], by) < 10);
    }
  }
}

TEST_CASE("a queue's decisions do not depend on when other queues take theirs") {
  const auto apart = decisions_of(7, 2);
  reset();
  set_longest_delay_us(kLongest);
  seed(7);
  QueueState first, second;
  Decisions of_first, of_second;
  std::thread other([&] { of_second = draw(second.schedule, 200); });
  of_first = draw(first.schedule, 200);
  other.join();
  CHECK(of_first == apart[0]);
  CHECK(of_second == apart[2]);
  reset();
}

TEST_CASE("about one decision in four holds, none for longer than the longest delay, none at zero") {
  const auto decisions = decisions_of(3, 1)[0];
  int held = 0;
  for (const uint32_t delay : decisions) {
    held += delay > 0 ? 1 : 0;
    CHECK(delay < kLongest);
  }
  CHECK(held > 20);
  CHECK(held < 100);
  set_longest_delay_us(0);
  Schedule still(0);
  for (const uint32_t delay : draw(still, 100)) CHECK(delay == 0);
  reset();
}
