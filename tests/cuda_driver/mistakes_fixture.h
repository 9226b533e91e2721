// mistakes_fixture.h: programs that the double ends, each in a process of its own.
#pragma once

#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread.h"
#include "double_fixture.h"
#include "tests/child_fixture.h"

namespace heddle::cuda_double {

struct Mistake {
  const char *name, *why;                 // what the double says
  void (*program)(const Ground& ground);  // with the context of device 0, of two
};

inline constexpr char kWhichMistake[] = "HEDDLE_TEST_MISTAKE";

// In the child: the one that the environment names.
inline void run_mistake(std::span<const Mistake> all) {
  signal(SIGABRT, SIG_DFL);
  signal(SIGSEGV, SIG_DFL);
  set_devices(2);
  const Ground ground;
  const std::string_view wanted = std::getenv(kWhichMistake);
  for (const Mistake& each : all) {
    if (each.name == wanted) each.program(ground);
  }
}

inline bool is_caught(const Mistake& mistake, const char* test_case) {
  const test::Child child = test::run_child(test_case, {std::string(kWhichMistake) + "=" + mistake.name});
  // A sanitizer may find it first.
  bool says_why = false;
  for (const char* words : {mistake.why, "AddressSanitizer", "ThreadSanitizer: data race"})
    says_why = says_why || child.said.find(words) != std::string::npos;
  return (child.signal != 0 || child.exit_code != 0) && says_why;
}

// `test_case` runs one of them.
inline void check_caught(std::span<const Mistake> all, const char* test_case) {
  Atomic<size_t> next{0};
  std::vector<char> caught(all.size());
  run_together(2, [&](int) {
    for (size_t i = next.add_relaxed(1); i < all.size(); i = next.add_relaxed(1))
      caught[i] = is_caught(all[i], test_case) ? 1 : 0;
  });
  for (size_t i = 0; i < all.size(); ++i) {
    CAPTURE(std::string(all[i].name));
    CHECK(caught[i] == 1);
  }
}

}  // namespace heddle::cuda_double
