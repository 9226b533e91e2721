// Random graphs: every way that computes one gives what the references give.
//
// HEDDLE_GRAPH_SEED=17 checks that graph alone; HEDDLE_GRAPHS: how many, from the seed HEDDLE_GRAPH_FIRST on.
#include <doctest/doctest.h>

#include <cstdlib>
#include <optional>
#include <set>
#include <string>

#include "agreement_fixture.h"
#include "tests/driver_conformance/op_cases_fixture.h"

namespace heddle::differential {
namespace {

std::optional<uint64_t> number_in(const char* variable) {
  const char* given = std::getenv(variable);
  if (given == nullptr) return std::nullopt;
  return std::stoull(given);
}

std::string failure(uint64_t seed, const RandomGraph& drawn, const std::string& differs) {
  return text(differs, "\nthis graph alone: HEDDLE_GRAPH_SEED=", seed, "\n", described(drawn));
}

constexpr uint64_t kGraphs = 4000;  // among so many each operator is met

}  // namespace

TEST_CASE("a random graph gives the references' results: on the host, in a batch, on sim and in bf16") {
  Agreement agreement(true);
  const std::optional<uint64_t> only = number_in("HEDDLE_GRAPH_SEED");
  const uint64_t first = only.value_or(number_in("HEDDLE_GRAPH_FIRST").value_or(0)),
                 count = only ? 1 : number_in("HEDDLE_GRAPHS").value_or(kGraphs);
  std::set<std::string_view> used;
  uint64_t wrong = 0;
  for (uint64_t seed = first; seed < first + count && wrong < 8; ++seed) {
    SeededChoices choices(seed);
    const RandomGraph drawn = random_graph(choices);
    for (const ir::Node& node : drawn.graph.nodes) used.insert(node.op->name);
    const std::string differs = agreement.check(drawn, choices);
    if (!differs.empty()) FAIL_CHECK(failure(seed, drawn, differs));
    wrong += differs.empty() ? 0 : 1;
    if (only) MESSAGE(described(drawn));
  }
  const Counts& counts = agreement.counts();
  MESSAGE(counts.graphs, " graphs of ", counts.nodes, " nodes and ", used.size(), " operators; ",
          counts.together, " in batches, ", counts.on_sim, " on sim, ", counts.in_bf16, " in bf16, ",
          counts.refused, " refused");
  for (const auto& [words, times] : agreement.refusals()) MESSAGE(times, " refused: ", words);
  if (only) return;
  CHECK(counts.refused * 20 < counts.graphs);
  CHECK(counts.together * 10 > counts.graphs);
  CHECK((counts.in_bf16 * 8 > counts.graphs || !agreement.has_bf16()));
  std::string missing;
  used.insert("NonZero");  // refused whatever its operand
  for (const conformance::Case& each : conformance::all_cases()) {
    if (count >= kGraphs && !used.contains(each.op) && missing.find(each.op) == std::string::npos)
      missing += text(each.op, ' ');
  }
  CHECK(missing == "");
}

}  // namespace heddle::differential
