// Question  What does handing one item over cost: on one thread, from one to another, and between 4 and 4;
//           and what does the bound cost against a queue without one?
// Peer      A deque under one lock that grows without bound and wakes one consumer per push. Read as   ns per
// item, wall: elapsed / items of all producers. With 2 cores, 4 + 4 threads mostly measure
//           the scheduler.
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/bounded_queue.h"
#include "bench/base/rounds.h"

namespace heddle::bench {
namespace {

constexpr int kRounds = 11;
constexpr uint64_t kItems = 50'000;  // of each producer
constexpr size_t kCapacity = 64;

struct Bounded {
  Bounded() : queue(kCapacity) {}
  void put(uint64_t item) {
    if (!queue.push(std::move(item), Deadline::never()).ok()) std::exit(1);
  }
  uint64_t get() { return *queue.pop(Deadline::never()); }
  BoundedQueue<uint64_t> queue;
};

struct Unbounded {
  void put(uint64_t item) {
    items.lock()->push_back(item);
    items.notify_one();
  }
  uint64_t get() {
    auto held = items.lock();
    held.wait([&] { return !held->empty(); });
    const uint64_t item = held->front();
    held->pop_front();
    return item;
  }
  Guarded<std::deque<uint64_t>, Rank::kHelpers> items;
};

template <class Queue>
uint64_t alone(Queue& queue) {
  uint64_t right = 0;
  for (uint64_t i = 0; i < kItems; ++i) {
    queue.put(i);
    right += queue.get() == i ? 1 : 0;
  }
  return right;
}

// Threads 0 to pairs - 1 produce, the others consume as many. Both ends sum up the items; the last thread to
// finish answers for all, so that a lost or doubled item is a wrong answer.
template <class Queue>
struct HandOver {
  explicit HandOver(int producers) : pairs(producers) {}
  uint64_t run(int thread) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < kItems; ++i) {
      if (thread < pairs) {
        const uint64_t item = static_cast<uint64_t>(thread) * kItems + i;
        queue.put(item);
        sum += item;
      } else {
        sum -= queue.get();
      }
    }
    balance.add_relaxed(sum);
    if (done.add_acq_rel(1) + 1 != 2 * pairs) return 0;
    done.store_relaxed(0);
    const bool right = balance.exchange_acq_rel(0) == 0;
    return right ? 2 * kItems * static_cast<uint64_t>(pairs) : 0;
  }
  const int pairs;
  Queue queue;
  Atomic<uint64_t> balance;
  Atomic<int> done;
};

int run(int argc, char** argv) {
  Bounded bounded_alone;
  Unbounded unbounded_alone;
  HandOver<Bounded> bounded_1(1), bounded_4(4);
  HandOver<Unbounded> unbounded_1(1), unbounded_4(4);
  const std::vector<Case> cases = {
      {"BoundedQueue, push then pop", 1, kItems, [&](int) { return alone(bounded_alone); }},
      {"unbounded deque, push then pop", 1, kItems, [&](int) { return alone(unbounded_alone); }},
      {"BoundedQueue, 1 to 1", 2, kItems, [&](int t) { return bounded_1.run(t); }},
      {"unbounded deque, 1 to 1", 2, kItems, [&](int t) { return unbounded_1.run(t); }},
      {"BoundedQueue, 4 to 4", 8, kItems, [&](int t) { return bounded_4.run(t); }},
      {"unbounded deque, 4 to 4", 8, kItems, [&](int t) { return unbounded_4.run(t); }},
  };
  std::vector<Figure> figures = compare(cases, kRounds);
  for (Figure& f : figures) {
    if (f.threads == 1) continue;  // an item is a push and a pop: two operations, of two threads
    for (Spread* s : {&f.wall_ns, &f.cpu_ns}) *s = {2 * s->low, 2 * s->median, 2 * s->high};
  }
  print(figures);
  std::printf("\nunbounded / bounded (over 1: the bounded queue is faster)\n");
  for (size_t i = 0; i < figures.size(); i += 2) print_ratio(figures[i], figures[i + 1]);
  write_json(argc, argv, "bounded_queue", figures);
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) { return heddle::bench::run(argc, argv); }
