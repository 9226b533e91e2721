// What a holder holds back, and when it is asked for it.
#include "base/held_back.h"

#include <doctest/doctest.h>

#include <memory>

namespace heddle {

namespace {

struct Counting final : Holder {
  void send() override { ++sent; }
  int sent = 0;
};

}  // namespace

TEST_CASE("a holder is asked to send where as much as is wanted, or less, is held back") {
  struct Case {
    uint64_t held, wanted;
    int sent;
  };
  for (const Case& c : {Case{5, 5, 1}, Case{5, 6, 1}, Case{5, 4, 0}, Case{0, 5, 0}}) {
    CAPTURE(c.held);
    CAPTURE(c.wanted);
    const auto holder = std::make_shared<Counting>();
    HeldBack held;
    held.held_by(holder, std::make_shared<Bell>());
    held.hold(c.held);
    held.want(c.wanted);
    CHECK(holder->sent == c.sent);
  }
}

}  // namespace heddle
