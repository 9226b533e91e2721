// Streams that hold runs back, on threads of the machine: asked for their native one, and forgotten.
#include <doctest/doctest.h>

#include "runtime/streams/adding_fixture.h"

namespace heddle::runtime {

TEST_CASE("threads that submit while a native stream is asked for get their values; nothing is held back") {
  test::Adding adding;
  for (int round = 0; round < 100; ++round) {
    const char* const wrong = test::native_is_asked_for(adding, 3, 20);
    REQUIRE_MESSAGE(wrong == nullptr, wrong);
  }
}

TEST_CASE("a stream that is forgotten while it holds runs back runs them, and gives them their values") {
  test::Adding adding;
  for (int round = 0; round < 100; ++round) {
    const char* const wrong = test::owner_forgets_stream(adding, 1 + round % (2 * test::Adding::kTogether));
    REQUIRE_MESSAGE(wrong == nullptr, wrong);
  }
}

}  // namespace heddle::runtime
