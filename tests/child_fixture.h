// child_fixture.h: a test case run in a process of its own.
//
//   What       run_child(name) starts this program anew with the one skipped test case `name`, and gives how
//              it ended and what it wrote.
//   Why        posix_spawn rather than fork: in a process with several threads the sanitizers' own locks stay
//              held in a forked child, and it hangs.
//   Elsewhere  HEDDLE_TEST_EMULATOR=words separated by spaces: the emulator that this program runs in, and
//              the child, too; the kernel itself could not start it.
//   Blocks     Until the child has ended; one that takes longer than `limit` is killed.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/sanitized_fixture.h"

#if defined(__APPLE__)
#include <mach-o/dyld.h>
#endif

extern char** environ;

namespace heddle::test {

// Whether a process with several threads may fork() and go on in the child: not under the sanitizers, whose
// allocators another thread may hold at that moment.
inline constexpr bool kForksWithThreads = !kSanitized;

struct Child {
  bool hung = false;
  int exit_code = -1;  // -1: it did not exit by itself
  int signal = 0;      // what ended it instead
  std::string said;    // stdout and stderr
};

inline void await_end(pid_t pid, Child& child) {
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFEXITED(status)) child.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) child.signal = WTERMSIG(status);
}

// The words that start this program anew.
inline std::vector<std::string> this_program() {
  std::vector<std::string> words;
#if defined(__APPLE__)
  char path[PATH_MAX];
  uint32_t size = sizeof path;
  REQUIRE(_NSGetExecutablePath(path, &size) == 0);
  words.emplace_back(path);
#else
  const char* emulator = std::getenv("HEDDLE_TEST_EMULATOR");
  std::istringstream split(emulator == nullptr ? "" : emulator);
  for (std::string word; split >> word;) words.push_back(word);
  words.push_back(words.empty() ? "/proc/self/exe" : std::filesystem::read_symlink("/proc/self/exe"));
#endif
  return words;
}

// `also`: further "NAME=value" of its environment; they come first, so they win.
inline Child run_child(const std::string& test_case, std::vector<std::string> also = {},
                       std::chrono::seconds limit = std::chrono::seconds(60)) {
  int ends[2] = {};
  REQUIRE(pipe(ends) == 0);
  for (const int end : ends) REQUIRE(fcntl(end, F_SETFD, FD_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<std::string> words = this_program();
  words.insert(words.end(), {"--test-case=" + test_case, "--no-skip", "--minimal"});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<char*> environment;
  for (std::string& one : also) environment.push_back(one.data());
  for (char** one = environ; *one != nullptr; ++one) environment.push_back(*one);
  environment.push_back(nullptr);
  pid_t pid = 0;
  const int started =
      posix_spawnp(&pid, words[0].c_str(), &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  REQUIRE(started == 0);

  Child child;
  const auto give_up = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(give_up - std::chrono::steady_clock::now());
    pollfd readable{.fd = ends[0], .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || poll(&readable, 1, static_cast<int>(left.count())) == 0) {
      child.hung = true;
      kill(pid, SIGKILL);
      break;
    }
    char bytes[4096];
    const ssize_t n = read(ends[0], bytes, sizeof bytes);
    if (n <= 0) break;
    child.said.append(bytes, static_cast<size_t>(n));
  }
  close(ends[0]);
  await_end(pid, child);
  return child;
}

}  // namespace heddle::test
