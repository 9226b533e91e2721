// What the probes of limits say of the double: as Apple documents it, and as the field met it.
#include "limit_probes.h"

#include <cstdio>
#include <map>
#include <set>
#include <sstream>

#include "drivers/metal/limits.h"
#include "field_fixture.h"

namespace heddle::metal::test {
namespace {

// Not a limit but an assumption of ours, which known_faults.mm has.
constexpr const char* kNoLimit = "executables in turn";

std::set<std::string> probed() {
  std::set<std::string> names;
  for (const auto part : {limits::product_probes(), limits::operator_probes(), limits::size_probes()}) {
    for (const limits::Probe& probe : part) names.insert(probe.limit);
  }
  return names;
}

std::string value_of(const std::string& line, const std::string& key) {
  const std::string before = "\"" + key + "\": \"";
  const size_t at = line.find(before);
  if (at == std::string::npos) return {};
  return line.substr(at + before.size(), line.find('"', at + before.size()) - at - before.size());
}

using Outcomes = std::map<std::string, std::set<std::string>>;  // of a limit's probes

// The program as a Mac runs it.
Outcomes ask(const char* mac, const std::string& words) {
  mac == nullptr ? unsetenv("HEDDLE_METAL_DOUBLE_MAC") : setenv("HEDDLE_METAL_DOUBLE_MAC", mac, 1);
  FILE* const program = popen(("'" HEDDLE_LIMIT_PROBES "' " + words).c_str(), "r");
  REQUIRE(program);
  std::string said;
  for (int c = 0; (c = std::fgetc(program)) != EOF;) said += static_cast<char>(c);
  CHECK(pclose(program) == 0);
  unsetenv("HEDDLE_METAL_DOUBLE_MAC");
  Outcomes outcomes;
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    const std::string limit = value_of(line, "limit");
    if (!limit.empty()) outcomes[limit].insert(value_of(line, "outcome"));
  }
  return outcomes;
}

bool all_right(const std::set<std::string>& outcomes) { return outcomes == std::set<std::string>{"right"}; }

TEST_CASE("every limit of the driver's table has a probe, and every probe a limit") {
  std::set<std::string> limits{kNoLimit};
  for (const LimitReport& report : limits_of({14, 0, 7})) limits.insert(report.name);
  CHECK(probed() == limits);
}

TEST_CASE("probes find nothing wrong on a stack without limits, but for what all versions have") {
  const std::set<std::string> ever = {"array axes",           "top k",           "padding of bool",
                                      "averages at the edge", "NaN in extremes", "softmax of nothing"};
  const Outcomes outcomes = ask(nullptr, "--small");
  CHECK(outcomes.size() == probed().size());
  for (const auto& [limit, of_it] : outcomes) CHECK_MESSAGE(all_right(of_it) != ever.contains(limit), limit);
}

TEST_CASE("probes of full size find each limit of the Mac at hand, and no other") {
  for (const FieldMac& mac : {kOldest, FieldMac{15, 0, Chip::kM2}, FieldMac{15, 4, Chip::kM3}, kNewest}) {
    const std::string name = std::to_string(mac.major) + "." + std::to_string(mac.minor) + "-M" +
                             std::to_string(static_cast<int>(mac.chip) + 1);
    CAPTURE(name);
    if (heddle::test::kSanitized && mac.major == 15) continue;  // each takes ten times as long there
    Outcomes outcomes = ask(name.c_str(), "");
    CHECK(outcomes.size() == probed().size());
    CHECK(outcomes[kNoLimit] == std::set<std::string>{"right"});
    CHECK(outcomes["blit size"] == std::set<std::string>{"too large"});        // for a double
    CHECK(outcomes["root command buffer"] == std::set<std::string>{"right"});  // of a graph that is not split
    for (const LimitReport& report : limits_of(driver_mac(mac))) {
      if (report.name == "blit size" || report.name == "root command buffer") continue;
      CHECK_MESSAGE(all_right(outcomes[report.name]) != report.applies, report.name);
    }
  }
}

TEST_CASE("the probes of copies and of the root command buffer notice what they are for") {
  const Machine machine;
  FieldLimits field = metal_double::field_limits_of(kNewest);
  field.wrong_blit_bytes = 256;
  for (const bool faulty : {false, true}) {
    if (faulty) metal_double::become(kNewest, field);
    metal_double::set(Fault::kGraphSplits, faulty);
    for (const limits::Probe& probe : limits::size_probes()) {
      const std::string limit = probe.limit;
      if (limit == "blit size" || limit == "root command buffer")
        CHECK_MESSAGE(limits::ask(probe, true).empty() != faulty, limit);
    }
  }
}

TEST_CASE("the probe of executables in turn notices one that is not re-entrant") {
  const Machine machine;
  metal_double::set(Fault::kExecutableNotReentrant, true);
  metal_double::meet(metal_double::Meeting::kEncode, 2);
  for (const limits::Probe& probe : limits::size_probes()) {
    if (std::string(probe.limit) == kNoLimit) CHECK_FALSE(limits::ask(probe, true).empty());
  }
}

TEST_CASE("the program of probes names what is wrong with its words") {
  CHECK(system("'" HEDDLE_LIMIT_PROBES "' --only 'no such limit' 2>/dev/null") != 0);
  CHECK(system("'" HEDDLE_LIMIT_PROBES "' --quick 2>/dev/null") != 0);
}

}  // namespace
}  // namespace heddle::metal::test
