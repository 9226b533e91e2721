#include "base/bounded_queue.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "base/thread.h"

namespace heddle {
namespace {

using std::chrono::milliseconds;
using Queue = BoundedQueue<std::unique_ptr<int>>;

std::unique_ptr<int> boxed(int x) { return std::make_unique<int>(x); }
Deadline now() { return Deadline::in(Duration(0)); }

TEST_CASE("items leave in the order they came, around the ring's end") {
  Queue queue(3);
  int next_in = 0, next_out = 0;
  for (int round = 0; round < 10; ++round) {
    while (queue.try_push(boxed(next_in)).ok()) ++next_in;
    CHECK(queue.size() == 3);
    for (int i = 0; i < 2; ++i) CHECK(**queue.try_pop() == next_out++);
  }
  CHECK(queue.capacity() == 3);
  CHECK(queue.size() == 1);
}

TEST_CASE("a refused item stays with the caller") {
  struct Row {
    const char* what;
    size_t capacity;
    bool closed;
    bool blocking;
    Code code;
  };
  for (const Row& row :
       {Row{"full, try", 1, false, false, Code::exhausted}, Row{"full, wait", 1, false, true, Code::deadline},
        Row{"no room at all", 0, false, false, Code::exhausted},
        Row{"closed, try", 2, true, false, Code::unavailable},
        Row{"closed, wait", 2, true, true, Code::unavailable}}) {
    INFO(row.what);
    Queue queue(row.capacity);
    if (row.capacity > 0) CHECK(queue.try_push(boxed(1)).ok());
    if (row.closed) queue.close();
    auto item = boxed(2);
    const Status status = row.blocking ? queue.push(std::move(item), now()) : queue.try_push(std::move(item));
    CHECK(status.code() == row.code);
    REQUIRE(item != nullptr);
    CHECK(*item == 2);
  }
}

TEST_CASE("a closed queue gives what is left, then says that it is closed") {
  Queue queue(4);
  for (int i = 0; i < 3; ++i) CHECK(queue.try_push(boxed(i)).ok());
  queue.close();
  queue.close();
  CHECK(**queue.pop(Deadline::never()) == 0);
  CHECK(**queue.try_pop() == 1);
  CHECK(**queue.pop(now()) == 2);
  CHECK(queue.pop(Deadline::never()).status().code() == Code::unavailable);
  CHECK(!queue.try_pop().has_value());
}

TEST_CASE("waits end at their deadline, not before") {
  Queue queue(1);
  TimePoint start = Clock::real().now();
  CHECK(queue.pop(Deadline::in(milliseconds(5))).status().code() == Code::deadline);
  CHECK(Clock::real().now() - start >= milliseconds(5));
  CHECK(queue.push(boxed(1), now()).ok());
  start = Clock::real().now();
  CHECK(queue.push(boxed(2), Deadline::in(milliseconds(5))).code() == Code::deadline);
  CHECK(Clock::real().now() - start >= milliseconds(5));
  CHECK(**queue.pop(now()) == 1);
}

TEST_CASE("closing ends every wait") {
  Queue empty(2), full(1);
  CHECK(full.try_push(boxed(0)).ok());
  Atomic<int> ended, about_to_wait;
  run_together(9, [&](int thread) {
    if (thread == 8) {
      while (about_to_wait.load_acquire() != 8) give_way();
      empty.close();
      full.close();
      return;
    }
    about_to_wait.add_acq_rel(1);
    const Status status =
        thread % 2 == 0 ? empty.pop(Deadline::never()).status() : full.push(boxed(1), Deadline::never());
    ended.add_relaxed(status.code() == Code::unavailable ? 1 : 0);
  });
  CHECK(ended.load_relaxed() == 8);
  CHECK(full.size() == 1);
}

TEST_CASE("drain takes everything in order and lets waiting producers go on") {
  Queue queue(2);
  CHECK(queue.try_push(boxed(1)).ok());
  CHECK(queue.try_push(boxed(2)).ok());
  Thread producer("producer", [&] { CHECK(queue.push(boxed(3), Deadline::never()).ok()); });
  std::vector<int> got;
  while (got.size() < 3) {
    for (const auto& item : queue.drain()) got.push_back(*item);
  }
  CHECK(got == std::vector<int>{1, 2, 3});
  CHECK(queue.drain().empty());
}

TEST_CASE("every item of many producers reaches exactly one of many consumers") {
  struct Row {
    int producers, consumers;
    size_t capacity;
  };
  constexpr int kItems = 3000;
  for (const Row& row : {Row{1, 1, 1}, Row{4, 4, 1}, Row{4, 4, 3}, Row{7, 2, 16}, Row{2, 7, 16}}) {
    INFO(row.producers, " producers, ", row.consumers, " consumers, capacity ", row.capacity);
    BoundedQueue<int> queue(row.capacity);
    std::vector<Atomic<int>> seen(static_cast<size_t>(row.producers * kItems));
    Atomic<int> producing(row.producers), refused, out_of_order;
    run_together(row.producers + row.consumers, [&](int thread) {
      if (thread < row.producers) {
        for (int i = 0; i < kItems; ++i) {
          int item = thread * kItems + i;
          // Every third without waiting, so that both ways in meet.
          if (i % 3 == 0 && queue.try_push(std::move(item)).ok()) continue;
          refused.add_relaxed(queue.push(std::move(item), Deadline::never()).ok() ? 0 : 1);
        }
        if (producing.sub_acq_rel(1) == 1) queue.close();
        return;
      }
      std::vector<int> last(static_cast<size_t>(row.producers), -1);
      for (;;) {
        const Result<int> item = queue.pop(Deadline::never());
        if (!item.ok()) return;
        seen[static_cast<size_t>(*item)].add_relaxed(1);
        int& before = last[static_cast<size_t>(*item / kItems)];
        out_of_order.add_relaxed(*item > before ? 0 : 1);  // one consumer sees each producer's items in order
        before = *item;
      }
    });
    int once = 0;
    for (const auto& count : seen) once += count.load_relaxed() == 1 ? 1 : 0;
    CHECK(once == row.producers * kItems);
    CHECK(refused.load_relaxed() == 0);
    CHECK(out_of_order.load_relaxed() == 0);
  }
}

}  // namespace
}  // namespace heddle
