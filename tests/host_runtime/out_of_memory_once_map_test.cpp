// A map that makes values once, while memory lacks: whatever allocation fails, the key is made by who asks
// next, and nobody waits without end.
#include <doctest/doctest.h>

#include <memory>
#include <new>
#include <optional>
#include <string>

#include "base/once_map.h"
#include "base/thread.h"
#include "base/yield.h"
#include "tests/host_runtime/out_of_memory_fixture.h"

namespace heddle {
namespace {

using test::fails_from_there;
using test::fails_in;
using Words = OnceMap<std::string, int>;

std::string long_key(int i) {
  return "a key that is too long to lie in the string itself, " + std::to_string(i);
}

Result<Ref<const int>> made_of(int value) { return Ref<const int>(std::make_shared<int>(value)); }

// True: the n-th allocation of the call was reached.
bool fails_at(Words& map, const std::string& key, int64_t n, bool from_there) {
  bool right = true;
  fails_from_there = from_there;
  fails_in = n;
  try {
    const auto value = map.get_or_make(key, [] { return made_of(1); });
    const bool failed = fails_in <= 0;
    fails_in = 0;
    right = value.ok() ? **value == 1 : failed;
    CHECK(right);
    fails_from_there = false;
    return failed;
  } catch (const std::bad_alloc&) {
    fails_in = 0;
    fails_from_there = false;
    return true;
  }
}

TEST_CASE("a key of a map is made by who asks next whichever allocation failed before") {
  for (const bool from_there : {false, true}) {
    bool reached = true;
    for (int64_t n = 1; reached; ++n) {
      CAPTURE(from_there);
      CAPTURE(n);
      Words map({.count = 4});
      // As many as make each fill the table or push another out, in turn.
      for (int i = 0; i < static_cast<int>(n); ++i)
        REQUIRE(map.get_or_make(long_key(i), [] { return made_of(2); }).ok());
      reached = fails_at(map, "the poor key, which is too long to lie in the string itself", n, from_there);
      for (int i = 0; i < 12; ++i) {
        const auto value = map.get_or_make("the poor key, which is too long to lie in the string itself",
                                           [] { return made_of(1); });
        REQUIRE(value.ok());
        CHECK(**value == 1);
        CHECK(map.get_or_make(long_key(100 + i % 6), [] { return made_of(3); }).ok());
      }
      CHECK(map.stats().count <= 4);
      CHECK(map.stats().waiting == 0);
    }
  }
}

TEST_CASE("who waits for a value that finds no memory to be kept is given it") {
  for (int64_t n = 1, failed = 1; failed != 0; ++n) {
    CAPTURE(n);
    Words map;
    std::optional<Result<Ref<const int>>> waited;
    Atomic<bool> makes{false};
    const auto make = [&] {
      makes.store_release(true);
      while (map.stats().waiting == 0) give_way();
      auto made = made_of(7);
      fails_in = n;
      return made;
    };
    {
      const Thread other("waits", [&] {
        while (!makes.load_acquire()) give_way();
        waited.emplace(map.get_or_make("seven", [] { return made_of(8); }));
      });
      try {
        const auto mine = map.get_or_make("seven", make);
        failed = fails_in <= 0;
        fails_in = 0;
        CHECK((mine.ok() && **mine == 7));
      } catch (const std::bad_alloc&) {
        fails_in = 0;
      }
    }
    REQUIRE(waited.has_value());
    REQUIRE(waited->ok());
    CHECK(***waited == 7);
    const auto next = map.get_or_make("seven", [] { return made_of(9); });
    REQUIRE(next.ok());
    CHECK((**next == 7 || failed != 0));
  }
}

}  // namespace
}  // namespace heddle
