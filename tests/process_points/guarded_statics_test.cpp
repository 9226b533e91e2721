// Static objects that a child could wait for without end: another thread was making one when it was forked.
#include <doctest/doctest.h>

#include <cstdio>
#include <memory>
#include <regex>
#include <string>
#include <vector>

namespace heddle::process_points {
namespace {

struct Guard {
  std::string object;
  bool of_thread;
};

// Of the library's objects in this program, by its symbols.
std::vector<Guard> read_guards() {
  const std::unique_ptr<FILE, int (*)(FILE*)> symbols(
      popen("readelf --syms --wide --demangle /proc/$PPID/exe", "r"), pclose);
  REQUIRE(symbols != nullptr);
  const std::regex is_guard(R"(^ *\d+: \w+ +\d+ (\w+) .* guard variable for (.*heddle::.*))");
  std::vector<Guard> guards;
  std::string line;
  for (int c = fgetc(symbols.get()); c != EOF; c = fgetc(symbols.get())) {
    if (c != '\n') {
      line.push_back(static_cast<char>(c));
      continue;
    }
    std::smatch found;
    const bool ours = line.find("guard variable for ") != std::string::npos &&
                      line.find("heddle::") != std::string::npos &&
                      line.find("process_points") == std::string::npos;
    if (ours && std::regex_search(line, found, is_guard)) guards.push_back({found[2], found[1] == "TLS"});
    line.clear();
  }
  return guards;
}

}  // namespace

TEST_CASE("no static object of the library has a guard but those of a thread") {
  const std::vector<Guard> guards = read_guards();
  int of_threads = 0;
  for (const Guard& guard : guards) {
    of_threads += guard.of_thread ? 1 : 0;
    CHECK_MESSAGE(guard.of_thread, guard.object, " has a guard; MadeOnce of base/made_once.h has none");
  }
  CHECK_MESSAGE(of_threads > 0, "no guard was found at all");
}

}  // namespace heddle::process_points
