// dying_fixture.h: code that has to abort, run in a process of its own.
//
//   What       A table of misuses, each with the words it has to die with. The parent starts its own
//              executable once per row (tests/child_fixture.h); the child finds its row by name and runs it.
//
//   const Misuse kMisuses[] = {{"commit twice", commit_twice, "commit an already committed command buffer"}};
//   TEST_CASE("a child runs its misuse" * doctest::skip()) { run_misuse_of_child(kMisuses); }
//   TEST_CASE("...") { check_all_die(kMisuses, "a child runs its misuse"); }
#pragma once

#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "tests/child_fixture.h"

namespace heddle::metal_double {

struct Misuse {
  const char* name;
  void (*code)();
  const char* words;
  bool in_threads = false;  // the thread sanitizer would report them in turn, before they meet
};

inline constexpr const char* kMisuseVariable = "HEDDLE_TEST_MISUSE";

inline void run_misuse_of_child(std::span<const Misuse> misuses) {
  const char* const name = getenv(kMisuseVariable);
  REQUIRE(name);
  signal(SIGABRT, SIG_DFL);  // doctest's handler would report, and allocate while it does
  for (const Misuse& misuse : misuses) {
    if (std::string(misuse.name) == name) misuse.code();
  }
}

inline void check_all_die(std::span<const Misuse> misuses, const char* test_case) {
  for (const Misuse& misuse : misuses) {
    const std::string name = misuse.name;
    std::vector<std::string> also = {std::string(kMisuseVariable) + "=" + name};
    if (misuse.in_threads) also.emplace_back("TSAN_OPTIONS=report_bugs=0");
    const test::Child child = test::run_child(test_case, also);
    CHECK_MESSAGE(child.signal == SIGABRT, name << ": " << child.said);
    const bool said = child.said.find(misuse.words) != std::string::npos;
    CHECK_MESSAGE(said, name << " should say '" << std::string(misuse.words) << "', said: " << child.said);
  }
}

}  // namespace heddle::metal_double
