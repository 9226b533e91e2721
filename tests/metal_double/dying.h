// dying.h: code that has to abort, run in a process of its own.
//
//   What       A table of misuses, each with the words it has to die with. The parent starts its own
//              executable once per row; the child finds its row by name and runs it. A fresh process rather
//              than a fork: sanitizers refuse threads after one.
//
//   const Misuse kMisuses[] = {{"commit twice", commit_twice, "commit an already committed command buffer"}};
//   TEST_CASE("a child runs its misuse" * doctest::skip()) { run_misuse_of_child(kMisuses); }
//   TEST_CASE("...") { check_all_die(kMisuses, "a child runs its misuse"); }
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

extern char** environ;

namespace heddle::metal_double {

struct Misuse {
  const char* name;
  void (*code)();
  const char* words;
};

inline constexpr const char* kMisuseVariable = "HEDDLE_TEST_MISUSE";

struct Death {
  bool aborted = false;
  std::string said;
};

inline Death run_child(const char* test_case, const char* misuse) {
  int ends[2] = {};
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::string filter = std::string("--test-case=") + test_case;
  std::string no_skip = "--no-skip";
  std::string program = "/proc/self/exe";
  char* arguments[] = {program.data(), filter.data(), no_skip.data(), nullptr};
  std::string variable = std::string(kMisuseVariable) + "=" + misuse;
  std::vector<char*> environment = {variable.data()};
  for (char** one = environ; *one; ++one) environment.push_back(*one);
  environment.push_back(nullptr);
  pid_t child = 0;
  REQUIRE(posix_spawn(&child, program.c_str(), &actions, nullptr, arguments, environment.data()) == 0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  Death death;
  char bytes[4096];
  for (ssize_t n = 0; (n = read(ends[0], bytes, sizeof bytes)) > 0;)
    death.said.append(bytes, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  death.aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
  return death;
}

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
    const Death death = run_child(test_case, misuse.name);
    const std::string name = misuse.name;
    CHECK_MESSAGE(death.aborted, name << ": " << death.said);
    const bool said = death.said.find(misuse.words) != std::string::npos;
    CHECK_MESSAGE(said, name << " should say '" << std::string(misuse.words) << "', said: " << death.said);
  }
}

}  // namespace heddle::metal_double
