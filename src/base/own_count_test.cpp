#include "base/own_count.h"

#include <doctest/doctest.h>

#include <array>

#include "base/thread.h"

namespace heddle {

namespace {

struct LivingObject {
  explicit LivingObject(Atomic<int>& left) : living(left) { living.add_relaxed(1); }
  ~LivingObject() { living.sub_relaxed(1); }
  Atomic<int>& living;
};

}  // namespace

TEST_CASE("an object lives as long as any of its references, and is not counted by another one's copies") {
  Atomic<int> living{0};
  auto first = std::make_shared<LivingObject>(living);
  auto apart = own_count(first);
  CHECK(apart.get() == first.get());
  auto copy = apart;
  CHECK(apart.use_count() == 2);
  CHECK(first.use_count() == 2);  // `first` and what `apart` keeps
  first.reset();
  apart.reset();
  CHECK(living.load_relaxed() == 1);
  copy.reset();
  CHECK(living.load_relaxed() == 0);
}

TEST_CASE("the last of eight threads' references ends the object, once") {
  for (int round = 0; round < 200; ++round) {
    Atomic<int> living{0};
    std::array<Ref<LivingObject>, 8> refs;
    {
      const auto object = std::make_shared<LivingObject>(living);
      for (auto& ref : refs) ref = own_count(object);
    }
    Atomic<int> seen{0};
    run_together(8, [&](int thread) {
      auto& mine = refs[static_cast<size_t>(thread)];
      const auto copy = mine;
      mine.reset();
      seen.add_relaxed(copy->living.load_relaxed());
    });
    CHECK(seen.load_relaxed() == 8);
    CHECK(living.load_relaxed() == 0);
  }
}

}  // namespace heddle
