// What the simulated memory lets loads find: of each small program exactly the outcomes that C++20 allows, as
// far as weak_memory.h models it; and races of data that is no atomic.
#include "base/weak_memory.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "base/schedules_fixture.h"
#include "base/sync.h"
#include "base/watched_fixture.h"

namespace heddle {
namespace {

using test::at_once;
using test::Watched;

using Outcomes = std::set<std::vector<int>>;

// All schedules, and all that loads may find.
template <class Body>
Outcomes outcomes_of(int threads, const Body& body) {
  Outcomes all;
  const test::Explored explored =
      test::explore_bound({.name = "litmus", .threads = threads, .weak_orders = true, .stale = 8}, 8,
                          [&](Simulation& sim, int) { all.insert(body(sim)); });
  CHECK_MESSAGE(!explored.failure, *explored.failure);
  return all;
}

enum class Order { relaxed, release_acquire, seq_cst };

void store(Atomic<int>& word, int value, Order order) {
  if (order == Order::relaxed) return word.store_relaxed(value);
  if (order == Order::release_acquire) return word.store_release(value);
  word.store_seq_cst(value);
}
int load(const Atomic<int>& word, Order order) {
  if (order == Order::relaxed) return word.load_relaxed();
  return order == Order::release_acquire ? word.load_acquire() : word.load_seq_cst();
}

Outcomes message_passing(Order writes, Order reads) {
  return outcomes_of(2, [=](Simulation& sim) {
    Atomic<int> data{0}, flag{0};
    std::vector<int> seen(2);
    at_once(sim, 2, [&](int i) {
      if (i == 0) {
        data.store_relaxed(1);
        store(flag, 1, writes);
      } else {
        seen[0] = load(flag, reads);
        seen[1] = data.load_relaxed();
      }
    });
    return seen;
  });
}

Outcomes store_buffer(Order writes, Order reads) {
  return outcomes_of(2, [=](Simulation& sim) {
    Atomic<int> words[2];
    std::vector<int> seen(2);
    at_once(sim, 2, [&](int i) {
      store(words[i], 1, writes);
      seen[static_cast<size_t>(i)] = load(words[1 - i], reads);
    });
    return seen;
  });
}

// Two writers, and two readers that read the words in both orders.
Outcomes independent_reads(Order writes, Order reads) {
  return outcomes_of(4, [=](Simulation& sim) {
    Atomic<int> words[2];
    std::vector<int> seen(4);
    at_once(sim, 4, [&](int i) {
      if (i < 2) return store(words[i], 1, writes);
      const auto first = static_cast<size_t>(i - 2);
      seen[2 * first] = load(words[first], reads);
      seen[2 * first + 1] = load(words[1 - first], reads);
    });
    return seen;
  });
}

TEST_CASE("weak orders: a message is passed by release and acquire, and by nothing weaker") {
  const Outcomes passed{{0, 0}, {0, 1}, {1, 1}}, all{{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  CHECK(message_passing(Order::release_acquire, Order::release_acquire) == passed);
  CHECK(message_passing(Order::seq_cst, Order::seq_cst) == passed);
  CHECK(message_passing(Order::relaxed, Order::release_acquire) == all);
  CHECK(message_passing(Order::release_acquire, Order::relaxed) == all);
  CHECK(message_passing(Order::relaxed, Order::relaxed) == all);
}

TEST_CASE("weak orders: two who write theirs and then read the other's miss each other, but for seq_cst") {
  const Outcomes met{{0, 1}, {1, 0}, {1, 1}}, all{{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  CHECK(store_buffer(Order::seq_cst, Order::seq_cst) == met);
  CHECK(store_buffer(Order::release_acquire, Order::release_acquire) == all);
  CHECK(store_buffer(Order::seq_cst, Order::release_acquire) == all);
  CHECK(store_buffer(Order::release_acquire, Order::seq_cst) == all);
  CHECK(store_buffer(Order::relaxed, Order::relaxed) == all);
}

TEST_CASE(
    "weak orders: two readers agree which of two words was written first, but for seq_cst they do not") {
  Outcomes all;
  for (int bits = 0; bits < 16; ++bits) all.insert({bits & 1, bits >> 1 & 1, bits >> 2 & 1, bits >> 3 & 1});
  CHECK(independent_reads(Order::release_acquire, Order::release_acquire) == all);
  Outcomes agreed = all;
  agreed.erase({1, 0, 1, 0});
  CHECK(independent_reads(Order::seq_cst, Order::seq_cst) == agreed);
}

TEST_CASE("weak orders: one word alone only goes forward, for its writer and for each reader") {
  const Outcomes reader = outcomes_of(2, [](Simulation& sim) {
    Atomic<int> word{0};
    std::vector<int> seen(2);
    at_once(sim, 2, [&](int i) {
      if (i == 0) {
        word.store_relaxed(1);
        word.store_relaxed(2);
      } else {
        for (int& each : seen) each = word.load_relaxed();
      }
    });
    return seen;
  });
  CHECK(reader == Outcomes{{0, 0}, {0, 1}, {0, 2}, {1, 1}, {1, 2}, {2, 2}});
  const Outcomes writers = outcomes_of(2, [](Simulation& sim) {
    Atomic<int> word{0};
    std::vector<int> seen(2);
    at_once(sim, 2, [&](int i) {
      word.store_relaxed(i + 1);
      seen[static_cast<size_t>(i)] = word.load_relaxed();
    });
    return seen;
  });
  CHECK(writers == Outcomes{{1, 1}, {1, 2}, {2, 2}});
}

TEST_CASE("weak orders: read-modify-writes lose nothing, and go on with a release that they read") {
  const Outcomes sums = outcomes_of(2, [](Simulation& sim) {
    Atomic<int> sum{0};
    at_once(sim, 2, [&](int) { sum.add_relaxed(1); });
    return std::vector<int>{sum.load_relaxed()};
  });
  CHECK(sums == Outcomes{{2}});
  const auto passed_on = [](bool by_change) {
    return outcomes_of(3, [=](Simulation& sim) {
      Atomic<int> data{0}, flag{0};
      std::vector<int> seen(2);
      at_once(sim, 3, [&](int i) {
        if (i == 0) {
          data.store_relaxed(1);
          flag.store_release(1);
        } else if (i == 1) {
          if (by_change) {
            flag.add_relaxed(2);
          } else if (flag.load_relaxed() == 1) {
            flag.store_relaxed(3);
          }
        } else {
          seen[0] = flag.load_acquire();
          seen[1] = data.load_relaxed();
        }
      });
      return seen;
    });
  };
  CHECK(passed_on(true).count({3, 0}) == 0);
  CHECK(passed_on(true).count({3, 1}) == 1);
  CHECK(passed_on(false).count({3, 0}) == 1);  // a store of another thread's ends the release sequence
}

TEST_CASE(
    "weak orders: a compare-and-swap that fails is a load, one that succeeds has found the newest value") {
  const Outcomes found = outcomes_of(2, [](Simulation& sim) {
    Atomic<int> word{0};
    std::vector<int> seen(2);
    at_once(sim, 2, [&](int i) {
      int expected = i;
      const bool swapped = word.cas_strong_acq_rel(expected, i + 1);
      seen[static_cast<size_t>(i)] = swapped ? 9 : expected;
    });
    return seen;
  });
  CHECK(found == Outcomes{{9, 0}, {9, 9}});
}

std::string failure_of(const test::ScheduledBody& body) {
  return test::some_fails({.name = "watched", .preemptions = 3, .weak_orders = true, .stale = 3}, body)
      .failure.value_or("");
}

TEST_CASE(
    "weak orders: data that is no atomic has to be ordered, by an atomic, a lock, or a start and an end") {
  const auto through = [](Order writes, Order reads) {
    return failure_of([=](Simulation& sim, int threads) {
      Watched<int> data;
      Atomic<int> flag{0};
      at_once(sim, threads, [&](int i) {
        if (i == 0) {
          data.set(1);
          store(flag, 1, writes);
        } else if (load(flag, reads) == 1) {
          sim.expect(data.get() == 1, "what was written");
        }
      });
      sim.expect(data.get() == 1, "its threads' ends are seen");
    });
  };
  CHECK(through(Order::release_acquire, Order::release_acquire).empty());
  const std::string beside = "data is used beside its write";
  CHECK(through(Order::relaxed, Order::release_acquire).find(beside) != std::string::npos);
  CHECK(through(Order::release_acquire, Order::relaxed).find(beside) != std::string::npos);
  const auto locked = [](bool both) {
    return failure_of([=](Simulation& sim, int threads) {
      Watched<int> data;
      Mutex mutex;
      at_once(sim, threads, [&](int i) {
        std::unique_lock held(mutex, std::defer_lock);
        if (i == 0 || both) held.lock();
        data.set(data.get() + 1);
      });
      sim.expect(data.get() == 2, "both were added");
    });
  };
  CHECK(locked(true).empty());
  CHECK(locked(false).find("nothing orders the two") != std::string::npos);
}

TEST_CASE("weak orders: an object has to be seen made, its atomics too, and none is used once it is gone") {
  struct Node {
    Atomic<int> word{7};
  };
  const auto published = [](Order order) {
    return failure_of([=](Simulation& sim, int threads) {
      std::unique_ptr<Node> node;
      Atomic<Node*> place{nullptr};
      at_once(sim, threads, [&](int i) {
        if (i == 0) {
          node = std::make_unique<Node>();
          order == Order::relaxed ? place.store_relaxed(node.get()) : place.store_release(node.get());
        } else if (const Node* const found = place.load_acquire()) {
          sim.expect(found->word.load_relaxed() == 7, "what it was made with");
        }
      });
    });
  };
  CHECK(published(Order::release_acquire).empty());
  CHECK(published(Order::relaxed).find("beside its construction") != std::string::npos);
  const std::string gone = failure_of([](Simulation& sim, int threads) {
    auto data = std::make_unique<Watched<int>>(1);
    Atomic<Watched<int>*> place{data.get()};
    at_once(sim, threads, [&](int i) {
      if (i == 0) {
        place.store_seq_cst(nullptr);
        data.reset();
      } else if (const Watched<int>* const found = place.load_seq_cst()) {
        sim.expect(found->get() == 1, "it is there");
      }
    });
  });
  CHECK(gone.find("beside a read") != std::string::npos);
}

}  // namespace
}  // namespace heddle
