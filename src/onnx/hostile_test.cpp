#include <doctest/doctest.h>

#include <random>
#include <string>

#include "onnx/record_count.h"
#include "onnx/sample_model.h"

namespace heddle::onnx {
namespace {

// A model with most kinds of records: weights, constants, a function, old attribute forms.
SampleModel rich_model() {
  SampleModel m = small_network();
  auto& function = *m.model.add_functions();
  function.set_domain("d");
  function.set_name("F");
  function.add_input("a");
  function.add_output("r");
  fill_node(*function.add_node(), "Softmax", {"a"}, {"r"});
  m.node("F", {"y"}, {"f"}, "call").set_domain("d");
  auto& constant = m.node("Constant", {}, {"axes"}, "axes");
  set(constant, "value_ints", std::vector<int64_t>{1, 2});
  m.node("ReduceSum", {"f", "axes"}, {"s"}, "sum");
  set(m.node("ReduceMean", {"f"}, {"mean"}, "mean"), "axes", std::vector<int64_t>{-1});
  set(m.node("Concat", {"f", "mean", "mean"}, {"c"}, "cat"), "axis", int64_t{2});
  set(m.node("Split", {"c"}, {"s0", "s1", "s2"}, "split"), "axis", int64_t{2});
  m.output("s");
  m.output("s1");
  return m;
}

// Loads or refuses; anything else ends the process. Counts those that load.
bool loads(const std::string& bytes) {
  const Limits limits{.tensor_bytes = 1 << 20, .records = 10'000, .nodes = 1'000};
  const auto graph = read_bytes(as_bytes(bytes), limits);
  if (graph.ok()) return true;
  CHECK((graph.status().code() == Code::invalid || graph.status().code() == Code::unsupported));
  CHECK_FALSE(graph.status().message().empty());
  return false;
}

}  // namespace

TEST_CASE("a model cut short anywhere is refused, or still means something") {
  const std::string whole = rich_model().bytes();
  REQUIRE(loads(whole));
  CHECK_FALSE(loads(""));
  size_t loaded = 0;
  for (size_t size = 1; size < whole.size(); ++size) loaded += loads(whole.substr(0, size)) ? 1 : 0;
  // The functions and opsets come last in the file: without the opset nothing loads.
  CHECK(loaded == 0);
}

TEST_CASE("a model with any bytes changed loads or is refused, and nothing else happens") {
  const std::string whole = rich_model().bytes();
  size_t refused = 0;
  for (uint32_t seed = 0; seed < 6'000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](size_t bound) {
      return std::uniform_int_distribution<size_t>(0, bound - 1)(random);
    };
    std::string spoilt = whole;
    const size_t changes = 1 + below(4);
    for (size_t i = 0; i < changes; ++i) {
      const size_t at = below(spoilt.size());
      switch (below(4)) {
        case 0:
          spoilt[at] = static_cast<char>(below(256));
          break;
        case 1:
          spoilt[at] = static_cast<char>(spoilt[at] ^ (1 << below(8)));
          break;
        case 2:
          spoilt.insert(at, 1 + below(8), static_cast<char>(below(256)));
          break;
        default:
          spoilt.erase(at, 1 + below(8));
          break;
      }
    }
    refused += loads(spoilt) ? 0 : 1;
  }
  CHECK(refused > 1'000);
  CHECK(refused < 6'000);
}

TEST_CASE("random bytes are refused") {
  for (uint32_t seed = 0; seed < 2'000; ++seed) {
    std::mt19937 random(seed);
    std::string bytes(1 + random() % 600, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    CAPTURE(seed);
    CHECK_FALSE(loads(bytes));
  }
  CHECK_FALSE(loads("This is a text, and no model at all."));
}

TEST_CASE("a file that declares more than it weighs is refused before it is built") {
  const auto field = [](uint32_t number, const std::string& content) {
    std::string out(1, static_cast<char>(number << 3 | 2));
    for (size_t size = content.size();; size >>= 7) {
      out += static_cast<char>((size & 0x7f) | (size > 0x7f ? 0x80 : 0));
      if (size <= 0x7f) break;
    }
    return out + content;
  };
  std::string nodes;
  for (int i = 0; i < 5'000; ++i) nodes += field(1, "");
  const std::string graph = field(7, nodes);
  CHECK(check_records(as_bytes(graph), 5'001).ok());
  CHECK_FALSE(check_records(as_bytes(graph), 5'000).ok());
  std::string deep;
  for (int i = 0; i < 200; ++i) deep = field(1, field(5, field(6, deep)));  // node, attribute, graph
  CHECK_FALSE(check_records(as_bytes(field(7, deep)), 1'000'000).ok());
  CHECK_FALSE(check_records(as_bytes(std::string("\x0b")), 10).ok());      // a group
  CHECK_FALSE(check_records(as_bytes(std::string("\x3a\x7f")), 10).ok());  // longer than the file
}

}  // namespace heddle::onnx
