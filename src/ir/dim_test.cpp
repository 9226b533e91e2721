#include "ir/dim.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace heddle::ir {

namespace {

const Dim kX = Dim::symbol("x");
const Dim kY = Dim::symbol("y");

std::vector<Dim> samples() {
  std::vector<Dim> all = {Dim(0),
                          Dim(1),
                          Dim(-3),
                          Dim(7),
                          kX,
                          kY,
                          kX * kY,
                          kX + 1,
                          kX * Dim(4) - 6,
                          kX * kX - kY,
                          kX * kY * Dim(6) + kX * Dim(2)};
  all.push_back(kX * Dim(2) + kY * Dim(4) + 8);
  return all;
}

const std::map<std::string, int64_t> kBindings[] = {
    {{"x", 0}, {"y", 0}}, {{"x", 1}, {"y", 5}}, {{"x", 9}, {"y", 2}}, {{"x", 128}, {"y", 31}}};

int64_t floor_quotient(int64_t a, int64_t b) { return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0); }

}  // namespace

TEST_CASE("evaluating an expression is the expression of the evaluated operands") {
  size_t divided = 0;
  for (const Dim& a : samples()) {
    for (const Dim& b : samples()) {
      CAPTURE(to_string(a));
      CAPTURE(to_string(b));
      const std::optional<Dim> exact = Dim::divide_exact(a, b);
      for (const auto& binding : kBindings) {
        const int64_t x = a.evaluate(binding).value();
        const int64_t y = b.evaluate(binding).value();
        CHECK((a + b).evaluate(binding) == x + y);
        CHECK((a - b).evaluate(binding) == x - y);
        CHECK((a * b).evaluate(binding) == x * y);
        if (const auto least = Dim::min(a, b).evaluate(binding)) CHECK(*least == std::min(x, y));
        if (const auto most = Dim::max(a, b).evaluate(binding)) CHECK(*most == std::max(x, y));
        if (exact.has_value()) CHECK(exact->evaluate(binding).value() * y == x);
        if (y == 0) continue;
        if (const auto floor = Dim::floor_div(a, b).evaluate(binding)) {
          CHECK(*floor == floor_quotient(x, y));
          ++divided;
        }
        if (const auto ceil = Dim::ceil_div(a, b).evaluate(binding)) CHECK(*ceil == -floor_quotient(-x, y));
        if (a.non_negative()) CHECK(x >= 0);
        if (!Dim::may_equal(a, b)) CHECK(x != y);
      }
    }
  }
  CHECK(divided > 100);
}

TEST_CASE("a product divides by its factors") {
  for (const Dim& a : samples()) {
    for (const Dim& b : samples()) {
      if (b.is(0)) continue;
      CAPTURE(to_string(a));
      CAPTURE(to_string(b));
      REQUIRE(Dim::divide_exact(a * b, b).has_value());
      CHECK(*Dim::divide_exact(a * b, b) == a);
    }
  }
  CHECK(!Dim::divide_exact(kX + 1, 2).has_value());
  CHECK(!Dim::divide_exact(kX, kY).has_value());
  CHECK(!Dim::divide_exact(kX, 0).has_value());
}

TEST_CASE("equal expressions are equal, however they were made") {
  CHECK((kX + kY) * (kX - kY) == kX * kX - kY * kY);
  CHECK(kX - kX == Dim(0));
  CHECK((kX - kX).is_static());
  CHECK(Dim::floor_div(kX - 1, 2) + 1 == Dim::floor_div(kX + 1, 2));
  CHECK(Dim::ceil_div(kX, 2) == Dim::floor_div(kX + 1, 2));
  CHECK(Dim::floor_div(kX * Dim(2) + 1, 2) == kX);
  CHECK(Dim::min(kX, 512) == Dim::min(512, kX));
  CHECK(Dim::max(kX, Dim::min(kX, 512)) == kX);
  CHECK(Dim::max(kX, 0) == kX);
  CHECK(Dim::min(kX, kX + 1) == kX);
  CHECK(!(Dim::unknown() == Dim::unknown()));
  const Dim unknown = Dim::unknown();
  CHECK(unknown == unknown);
}

TEST_CASE("a sum that begins, or ends, as a minimum does is none") {
  const Dim least = Dim::min(0, kX - 1), most = Dim::min(kX * Dim(2), kY);
  CHECK(Dim::max(least - kY, 0) != Dim(0));
  CHECK(Dim::max(0, least - kY) != Dim(0));
  CHECK(Dim::min(most + 1, kY) != kY);
  CHECK(Dim::min(least - most, kY) != kY);
  CHECK(Dim::max(least, 0) == Dim(0));
  CHECK(Dim::max(most, kY) == kY);
}

TEST_CASE("text names the expression") {
  CHECK(to_string(Dim(128)) == "128");
  CHECK(to_string(Dim(1) + kX * kY * Dim(2)) == "2*x*y + 1");
  CHECK(to_string(Dim(4) - kX) == "-x + 4");
  CHECK(to_string(Dim::floor_div(kX - 1, 2) + 1) == "floor((x + 1)/2)");
  CHECK(Dim::floor_div(kX, kY).mentions("y"));
  CHECK(!Dim::symbol("xy").mentions("x"));
  CHECK(!Dim::floor_div(Dim::symbol("xy"), 2).mentions("x"));
}

TEST_CASE("arithmetic saturates and expressions stay small") {
  CHECK((Dim(INT64_MAX) + 1).value() == Dim::kHuge);
  CHECK((Dim(INT64_MAX) * Dim(-2)).value() == -Dim::kHuge);
  CHECK((kX * Dim(INT64_MAX) * Dim(2)).evaluate({{"x", 3}}) == Dim::kHuge);
  CHECK(Dim::floor_div(INT64_MIN, -1).value() == Dim::kHuge);
  CHECK(Dim::floor_div(7, 0).value() == Dim::kHuge);
  Dim power = kX + kY + 1;
  Dim nested = kX;
  for (int i = 0; i < 40; ++i) {
    power = power * power;
    nested = Dim::max(nested * Dim(3) - kY, kY * nested);
  }
  CHECK(to_string(power).size() < 64 * 1024);
  CHECK(to_string(nested).size() < 64 * 1024);
  CHECK(!kX.evaluate({}).has_value());
}

}  // namespace heddle::ir
