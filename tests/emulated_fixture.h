// emulated_fixture.h: what the tests of another machine's build cannot show under its emulator (qemu-user),
// and why.
//
//   What       Every test that is left out there stands in kNotEmulated; `* doctest::skip(not_emulated(it))`
//              beside its name leaves it out. kEmulated is for tests that measure longer or run less there.
//   Threads    Constants.
#pragma once

#include <string_view>

namespace heddle::test {

#ifdef HEDDLE_EMULATED
inline constexpr bool kEmulated = true;
#else
inline constexpr bool kEmulated = false;
#endif

struct NotEmulated {
  std::string_view test, reason;
};

inline constexpr NotEmulated kNotEmulated[] = {
    {"the pages are huge where the kernel has huge pages", "qemu-user passes no MADV_HUGEPAGE on"},
};

constexpr bool not_emulated(std::string_view test) {
  for (const NotEmulated& one : kNotEmulated) {
    if (one.test == test) return kEmulated;
  }
  return false;
}

}  // namespace heddle::test
