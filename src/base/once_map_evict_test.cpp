// What a OnceMap keeps, what it drops and when: limits, erasing, lifetime, and churn.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "base/once_map.h"
#include "base/thread.h"

namespace heddle {
namespace {

using IntMap = OnceMap<int, int>;
using Value = Ref<const int>;

Result<Value> value_of(int x) { return std::make_shared<const int>(x); }

// Makes key -> 10 * key with the given size if it is not there.
void put(IntMap& map, int key, uint64_t bytes = 0) {
  const auto result = map.get_or_make(key, [&]() -> Result<IntMap::Made> {
    return IntMap::Made(std::make_shared<const int>(10 * key), bytes);
  });
  REQUIRE(result.ok());
  REQUIRE(**result == 10 * key);
}

std::vector<int> present(const IntMap& map, int keys) {
  std::vector<int> out;
  for (int key = 0; key < keys; ++key) {
    if (map.peek(key) != nullptr) out.push_back(key);
  }
  return out;
}

TEST_CASE("a table serves half as many insertions as it had entries, whether others go or not") {
  IntMap growing;
  for (int key = 0; key < 4096; ++key) put(growing, key);
  CHECK(growing.stats().tables <= 24);  // each has room for one and a half times the entries
  IntMap full({.count = 64, .bytes = 0});
  for (int key = 0; key < 4096; ++key) put(full, key);
  CHECK(full.stats().tables <= 4096 / 32 + 11);
  CHECK(full.stats().evictions == 4096 - 64);
  CHECK(present(full, 4096).size() == 64);
}

TEST_CASE("the count limit holds, and the oldest unused entry goes first") {
  IntMap map({.count = 3, .bytes = 0});
  for (int key = 0; key < 5; ++key) {
    put(map, key);
    CHECK(map.stats().count == std::min<uint64_t>(3, static_cast<uint64_t>(key) + 1));
  }
  CHECK(map.stats().evictions == 2);
  CHECK(present(map, 5) == std::vector<int>{2, 3, 4});
}

TEST_CASE("an entry that is hit outlives entries that are not") {
  IntMap map({.count = 4, .bytes = 0});
  for (int key = 0; key < 4; ++key) put(map, key);
  for (int key = 4; key < 40; ++key) {
    CHECK(map.peek(0) != nullptr);
    put(map, key);
  }
  CHECK(map.peek(0) != nullptr);
  CHECK(map.stats().evictions == 36);
}

TEST_CASE("the byte limit holds and the bytes are those of what is kept") {
  IntMap map({.count = 0, .bytes = 100});
  put(map, 0, 40);
  put(map, 1, 40);
  put(map, 2, 15);
  CHECK(map.stats().bytes == 95);
  put(map, 3, 60);
  CHECK(map.stats().bytes == 75);
  CHECK(present(map, 4) == std::vector<int>{2, 3});
}

TEST_CASE("an entry larger than the limit is kept until the next one") {
  IntMap map({.count = 0, .bytes = 100});
  put(map, 0, 30);
  put(map, 1, 500);
  CHECK(present(map, 2) == std::vector<int>{1});
  put(map, 2, 30);
  CHECK(present(map, 3) == std::vector<int>{2});
  CHECK(map.stats().bytes == 30);
}

TEST_CASE("lower limits evict at once") {
  IntMap map;
  for (int key = 0; key < 10; ++key) put(map, key, 8);
  CHECK(map.stats().bytes == 80);
  map.set_limits({.count = 6, .bytes = 0});
  CHECK(map.stats().count == 6);
  map.set_limits({.count = 0, .bytes = 20});
  CHECK(map.stats().count == 2);
  CHECK(map.stats().bytes == 16);
  map.set_limits({.count = 0, .bytes = 4});
  CHECK(map.stats().count == 0);
}

TEST_CASE("an evicted value in use stays alive, one that is not dies at once") {
  IntMap map({.count = 1, .bytes = 0});
  put(map, 0);
  Value held = map.peek(0);
  put(map, 1);
  const std::weak_ptr<const int> second = map.peek(1);
  put(map, 2);
  CHECK(map.peek(0) == nullptr);
  CHECK(*held == 0);
  CHECK(held.use_count() == 1);
  CHECK(second.expired());
}

TEST_CASE("erasing drops the matching keys only, with their values") {
  IntMap map;
  for (int key = 0; key < 10; ++key) put(map, key, 1);
  const std::weak_ptr<const int> odd = map.peek(3);
  const std::weak_ptr<const int> even = map.peek(4);
  map.erase_if([](int key) { return key % 2 == 1; });
  CHECK(present(map, 10) == std::vector<int>{0, 2, 4, 6, 8});
  CHECK(odd.expired());
  CHECK(!even.expired());
  CHECK(map.stats().bytes == 5);
  map.clear();
  CHECK(even.expired());
  CHECK(map.stats().count == 0);
  CHECK(map.stats().evictions == 0);
  put(map, 3);
  CHECK(*map.peek(3) == 30);
}

TEST_CASE("a flight that is erased answers its waiters but is not kept") {
  IntMap map;
  Atomic<int> answered;
  run_together(4, [&](int) {
    const auto result = map.get_or_make(5, [&] {
      while (map.stats().waiting != 3) give_way();
      map.clear();
      CHECK(**map.get_or_make(5, [] { return value_of(2); }) == 2);  // made anew beside it
      return value_of(1);
    });
    answered.add_relaxed(result.ok() && **result == 1 ? 1 : 0);
  });
  CHECK(answered.load_relaxed() == 4);
  CHECK(*map.peek(5) == 2);
  CHECK(map.stats().makes == 2);
  CHECK(map.stats().count == 1);
}

struct Caller {  // a value whose end calls the map
  Caller(const OnceMap<int, Caller>* m, Atomic<int>* e) : map(m), ended(e) {}
  ~Caller() {
    const NoLocksHeld checked;
    static_cast<void>(map->stats());
    ended->add_relaxed(1);
  }
  const OnceMap<int, Caller>* map;
  Atomic<int>* ended;
};

TEST_CASE("values are destroyed with no lock held") {
  Atomic<int> ended;
  OnceMap<int, Caller> map({.count = 2, .bytes = 0});
  for (int key = 0; key < 5; ++key) {
    const auto made = map.get_or_make(
        key, [&]() -> Result<Ref<const Caller>> { return std::make_shared<const Caller>(&map, &ended); });
    CHECK(made.ok());
  }
  CHECK(ended.load_relaxed() == 3);
  map.clear();
  CHECK(ended.load_relaxed() == 5);
}

struct Counted {
  explicit Counted(int k, Atomic<int>* l) : key(k), live(l) { live->add_relaxed(1); }
  ~Counted() {
    key = -1;
    live->sub_relaxed(1);
  }
  int key;
  Atomic<int>* live;
};

TEST_CASE("readers get right values while writers evict and erase under them, and nothing is lost") {
  constexpr int kThreads = 8, kOperations = 10000, kKeys = 24;
  Atomic<int> live, right, makes, peeks;
  {
    OnceMap<int, Counted> map({.count = 8, .bytes = 0});
    run_together(kThreads, [&](int thread) {
      uint32_t random = static_cast<uint32_t>(thread) * 2654435761u + 1;
      for (int i = 0; i < kOperations; ++i) {
        random = random * 1664525u + 1013904223u;
        const int key = static_cast<int>((random >> 16) % kKeys) / (i % 2 == 0 ? 1 : 6);  // some keys are hot
        if (thread == 0 && i % 500 == 250) map.erase_if([&](int k) { return k % 2 == key % 2; });
        if (thread == 1 && i % 900 == 450) map.clear();
        const auto got = map.get_or_make(key, [&]() -> Result<Ref<const Counted>> {
          makes.add_relaxed(1);
          give_way();  // so that the threads meet in the middle of flights also on one core
          return std::make_shared<const Counted>(key, &live);
        });
        right.add_relaxed(got.ok() && (*got)->key == key ? 1 : 0);
        const auto seen = map.peek(key);
        peeks.add_relaxed(seen == nullptr || seen->key == key ? 1 : 0);
      }
    });
    const auto stats = map.stats();
    CHECK(stats.count <= 8);
    CHECK(stats.makes == static_cast<uint64_t>(makes.load_relaxed()));
    CHECK(stats.hits + stats.misses == uint64_t{2} * kThreads * kOperations);
    CHECK(stats.evictions > 0);
    CHECK(live.load_relaxed() >= static_cast<int>(stats.count));
    map.clear();
    CHECK(live.load_relaxed() == 0);
  }
  CHECK(right.load_relaxed() == kThreads * kOperations);
  CHECK(peeks.load_relaxed() == kThreads * kOperations);
}

}  // namespace
}  // namespace heddle
