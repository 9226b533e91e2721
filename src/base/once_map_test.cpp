#include "base/once_map.h"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread.h"

namespace heddle {
namespace {

using IntMap = OnceMap<int, int>;
using Value = Ref<const int>;

Result<Value> boxed(int x) { return std::make_shared<const int>(x); }

void await_waiting(const IntMap& map, uint64_t threads) {
  while (map.stats().waiting != threads) give_way();
}

TEST_CASE("one key is made once however many threads ask") {
  constexpr int kThreads = 64;
  IntMap map;
  Atomic<int> makes;
  std::vector<Value> got(kThreads);
  run_together(kThreads, [&](int i) {
    auto result = map.get_or_make(7, [&] {
      makes.add_relaxed(1);
      await_waiting(map, kThreads - 1);  // all other threads are in the same flight
      return boxed(49);
    });
    if (result.ok()) got[static_cast<size_t>(i)] = *result;
  });
  CHECK(makes.load_relaxed() == 1);
  for (const Value& value : got) {
    REQUIRE(value != nullptr);
    CHECK(*value == 49);
    CHECK(value == got[0]);
  }
  const auto stats = map.stats();
  CHECK(stats.makes == 1);
  CHECK(stats.misses == kThreads);
  CHECK(stats.hits == 0);
  CHECK(stats.waiting == 0);
}

TEST_CASE("a failed make reaches every waiter once, and the next call makes again") {
  constexpr int kThreads = 64;
  IntMap map;
  Atomic<int> makes, told;
  run_together(kThreads, [&](int) {
    auto result = map.get_or_make(7, [&]() -> Result<Value> {
      makes.add_relaxed(1);
      await_waiting(map, kThreads - 1);
      return Status::exhausted("no memory for 7");
    });
    told.add_relaxed(to_string(result.status()) == "exhausted: no memory for 7" ? 1 : 0);
  });
  CHECK(makes.load_relaxed() == 1);
  CHECK(told.load_relaxed() == kThreads);
  CHECK(map.stats().failures == 1);
  CHECK(map.peek(7) == nullptr);

  const auto again = map.get_or_make(7, [] { return boxed(1); });
  REQUIRE(again.ok());
  CHECK(**again == 1);
  CHECK(map.stats().makes == 1);
}

TEST_CASE("a joiner leaves at its deadline; the make goes on for the other joiners and for later calls") {
  constexpr int kThreads = 9;  // the maker, four with a deadline, four without
  IntMap map;
  Atomic<bool> making;
  Atomic<int> makes, left, stayed;
  const auto make = [&] {
    makes.add_relaxed(1);
    making.store_release(true);
    making.notify_all();
    while (left.load_acquire() != 4) give_way();
    await_waiting(map, 4);  // a joiner that left is no longer counted
    return boxed(49);
  };
  run_together(kThreads, [&](int i) {
    if (i != 0) making.wait(false);
    const bool leaves = i % 2 == 1;
    const auto result =
        leaves ? map.get_or_make(7, make, Deadline::in(std::chrono::milliseconds(i)))
               : map.get_or_make(7, make, i == 8 ? std::nullopt : std::optional(Deadline::never()));
    if (result.status().code() == Code::deadline &&
        result.status().message().find("key '7'") != std::string::npos) {
      left.add_acq_rel(1);
    }
    if (result.ok() && **result == 49) stayed.add_relaxed(1);
  });
  CHECK(left.load_relaxed() == 4);
  CHECK(stayed.load_relaxed() == kThreads - 4);
  CHECK(makes.load_relaxed() == 1);
  CHECK(**map.get_or_make(7, make, Deadline::at(TimePoint())) == 49);
  CHECK(map.stats().makes == 1);
}

TEST_CASE("an interrupt ends a join that has a deadline, and none that has not") {
  IntMap map;
  Atomic<bool> making, leave;
  const Thread maker("maker", [&] {
    const auto value = map.get_or_make(1, [&] {
      making.store_release(true);
      making.notify_all();
      leave.wait(false);
      return boxed(11);
    });
    CHECK(**value == 11);
  });
  making.wait(false);
  Atomic<bool> answered;
  Thread patient("patient", [&] {
    CHECK(**map.get_or_make(1, [] { return boxed(-1); }) == 11);
    answered.store_release(true);
  });
  await_waiting(map, 1);
  ask_while_waiting([] { return true; });
  const auto left = map.get_or_make(1, [] { return boxed(-1); }, Deadline::never());
  ask_while_waiting(nullptr);
  CHECK(left.status().code() == Code::deadline);
  CHECK_FALSE(answered.load_acquire());
  CHECK(map.stats().waiting == 1);
  leave.store_release(true);
  leave.notify_all();
  patient.join();
  CHECK(answered.load_acquire());
}

TEST_CASE("a joiner that left blocks no other make: its thread may make what the old maker asks for") {
  IntMap map;
  Atomic<int> step;
  Thread maker("maker", [&] {
    const auto value = map.get_or_make(1, [&] {
      step.store_release(1);
      step.notify_all();
      step.wait(1);
      return map.get_or_make(2, [] { return boxed(-1); });  // joins the make of the one that left
    });
    CHECK(**value == 22);
  });
  step.wait(0);
  CHECK(map.get_or_make(
               1, [] { return boxed(-1); }, Deadline::at(TimePoint()))
            .status()
            .code() == Code::deadline);
  const auto value = map.get_or_make(2, [&] {
    step.store_release(2);
    step.notify_all();
    while (map.stats().misses != 4) give_way();  // the maker of 1 has asked for 2
    await_waiting(map, 1);
    return boxed(22);
  });
  CHECK(**value == 22);
  maker.join();
  CHECK(**map.get_or_make(1, [] { return boxed(-1); }) == 22);
}

TEST_CASE("a make that asks for its own key gets an error that names the key, directly or through another") {
  OnceMap<std::string, int> map;
  Status inner;
  const auto direct = map.get_or_make("self", [&]() -> Result<Value> {
    inner = map.get_or_make("self", [] { return boxed(1); }).status();
    return boxed(2);
  });
  CHECK(**direct == 2);
  CHECK(inner.code() == Code::internal);
  CHECK(inner.message().find("'self'") != std::string::npos);

  const auto circle = map.get_or_make("a", [&] {
    return map.get_or_make("b", [&] { return map.get_or_make("a", [] { return boxed(1); }); });
  });
  CHECK(circle.status().code() == Code::internal);
  CHECK(circle.status().message().find("'a'") != std::string::npos);
  CHECK(map.stats().count == 1);
}

TEST_CASE("makes that wait for each other on two threads end with an error instead of a standstill") {
  IntMap map;
  Atomic<int> inside;
  Atomic<int> circles;
  run_together(2, [&](int me) {
    const auto result = map.get_or_make(me, [&]() -> Result<Value> {
      inside.add_acq_rel(1);
      while (inside.load_acquire() != 2) give_way();
      auto other = map.get_or_make(1 - me, [] { return boxed(0); });
      if (!other.ok() && other.status().message().find("wait for itself") != std::string::npos) {
        circles.add_relaxed(1);
        return boxed(100 + me);  // the one that was told goes on, and so frees the other
      }
      return other;
    });
    CHECK(result.ok());
  });
  CHECK(circles.load_relaxed() == 1);
  CHECK(*map.peek(0) == *map.peek(1));
}

TEST_CASE("an exception from make reaches its caller, and the waiters get an error") {
  IntMap map;
  Atomic<int> thrown, told;
  run_together(8, [&](int) {
    try {
      const auto result = map.get_or_make(3, [&]() -> Result<Value> {
        await_waiting(map, 7);
        throw std::runtime_error("boom");
      });
      told.add_relaxed(result.status().code() == Code::internal &&
                               result.status().message().find("'3'") != std::string::npos
                           ? 1
                           : 0);
    } catch (const std::runtime_error& error) {
      thrown.add_relaxed(std::string_view(error.what()) == "boom" ? 1 : 0);
    }
  });
  CHECK(thrown.load_relaxed() == 1);
  CHECK(told.load_relaxed() == 7);
  CHECK(**map.get_or_make(3, [] { return boxed(9); }) == 9);
}

TEST_CASE("a null value is a failure") {
  IntMap map;
  const auto result = map.get_or_make(1, []() -> Result<Value> { return Value(); });
  CHECK(result.status().code() == Code::internal);
  CHECK(map.stats().failures == 1);
}

TEST_CASE("keys whose hashes are equal keep their own values") {
  struct Same {
    size_t operator()(int) const { return 42; }
  };
  OnceMap<int, int, Same> map;
  for (int key = 0; key < 50; ++key) CHECK(map.get_or_make(key, [&] { return boxed(key * key); }).ok());
  for (int key = 0; key < 50; ++key) CHECK(*map.peek(key) == key * key);
  CHECK(map.peek(50) == nullptr);
  CHECK(map.stats().count == 50);
}

struct Name {
  explicit Name(std::string_view s) : text(s) { built.add_relaxed(1); }
  std::string text;
  bool operator==(std::string_view other) const { return text == other; }
  bool operator==(const Name& other) const { return text == other.text; }
  static Atomic<int> built;
};
Atomic<int> Name::built;
struct NameHash {
  size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  size_t operator()(const Name& n) const { return (*this)(n.text); }
};

TEST_CASE("a hit by another type builds no key, a miss builds one") {
  OnceMap<Name, int, NameHash> map;
  const std::string_view wanted = "alpha";
  CHECK(map.get_or_make(wanted, [] { return boxed(1); }).ok());
  CHECK(Name::built.load_relaxed() == 1);
  for (int i = 0; i < 10; ++i) CHECK(**map.get_or_make(wanted, [] { return boxed(2); }) == 1);
  CHECK(*map.peek(wanted) == 1);
  CHECK(map.peek(std::string_view("beta")) == nullptr);
  CHECK(Name::built.load_relaxed() == 1);
}

TEST_CASE("a hit takes no lock, and a slow make of one key blocks no hit of another") {
  constexpr int kHits = 1000;
  IntMap map;
  CHECK(map.get_or_make(1, [] { return boxed(11); }).ok());
  Atomic<bool> making, hits_done;
  Thread slow("slow-make", [&] {
    const auto result = map.get_or_make(2, [&] {
      making.store_release(true);
      making.notify_one();
      hits_done.wait(false);  // a blocked hit would end in a standstill here
      return boxed(22);
    });
    CHECK(**result == 22);
  });
  making.wait(false);
  clear_lock_counts();
  set_lock_counting(true);
  int right = 0;
  for (int i = 0; i < kHits; ++i) {
    const auto hit = map.get_or_make(1, [] { return boxed(-1); });
    right += hit.ok() && **hit == 11 && *map.peek(1) == 11 ? 1 : 0;
  }
  set_lock_counting(false);
  CHECK(read_lock_counts()[static_cast<size_t>(Rank::kCache)].acquisitions == 0);
  hits_done.store_release(true);
  hits_done.notify_one();
  slow.join();
  CHECK(right == kHits);
  CHECK(*map.peek(2) == 22);
}

TEST_CASE("hits and misses add up to the calls") {
  IntMap map;
  for (int i = 0; i < 100; ++i) CHECK(map.get_or_make(i % 10, [&] { return boxed(i); }).ok());
  for (int i = 0; i < 20; ++i) static_cast<void>(map.peek(i));
  const auto stats = map.stats();
  CHECK(stats.misses == 10 + 10);
  CHECK(stats.hits == 90 + 10);
  CHECK(stats.makes == 10);
  CHECK(stats.evictions == 0);
}

}  // namespace
}  // namespace heddle
