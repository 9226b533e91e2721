#include "onnx/names.h"

#include <doctest/doctest.h>

#include <string>

namespace heddle::onnx {

TEST_CASE("only whole, shortest UTF-8 without control characters is clean") {
  for (const std::string clean : {"", "encoder/Add_3", "naïve", "\u6a5f\u7e54", "\U0001f9f5"}) {
    CAPTURE(clean);
    CHECK(is_clean(clean));
    CHECK(printable(clean) == clean);
  }
  for (const std::string unclean : {"a\nb", "\x7f", "\x80", "\xc3", "\xc0\xaf", "\xe2\x82", "\xed\xa0\x80",
                                    "\xf4\x90\x80\x80", "\xff", "\xc2\x85"}) {
    CAPTURE(printable(unclean));
    CHECK_FALSE(is_clean(unclean));
    CHECK(is_clean(printable(unclean)));
    CHECK(printable(unclean) != unclean);
  }
  CHECK(in_quotes(std::string("a\0b", 3)) == "'a\\x00b'");
}

TEST_CASE("a long name is cut where it is shown") {
  const std::string shown = printable(std::string(100'000, 'n'));
  CHECK(shown.size() < kNameBytes + 10);
  CHECK(shown.ends_with("..."));
}

}  // namespace heddle::onnx
