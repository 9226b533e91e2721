#include "plan/replacements.h"

#include "plan/passes/optimize.h"
#include "plan/sketch_fixture.h"

namespace heddle::plan {
namespace {

using Id = Sketch::Id;
using Names = std::vector<std::string>;

struct Named {
  Names nodes, sources;
  friend bool operator==(const Named&, const Named&) = default;
};

Names operators(const ir::Graph& graph, const std::vector<int>& nodes) {
  Names names;
  for (int i : nodes) names.emplace_back(graph.nodes[static_cast<size_t>(i)].op->name);
  return names;
}

std::vector<Named> replaced(const ir::Graph& source) {
  auto optimised = optimize(source);
  INFO(to_string(optimised.status()));
  REQUIRE(optimised.ok());
  std::vector<Named> all;
  std::vector<int> nodes(optimised->nodes.size()), sources(source.nodes.size());
  for (const Replacement& each : replacements(source, *optimised)) {
    all.push_back({operators(*optimised, each.nodes), operators(source, each.sources)});
    for (int i : each.nodes) ++nodes[static_cast<size_t>(i)];
    for (int i : each.sources) ++sources[static_cast<size_t>(i)];
  }
  CHECK(nodes == std::vector<int>(nodes.size(), 1));
  CHECK(std::all_of(sources.begin(), sources.end(), [](int times) { return times <= 1; }));
  return all;
}

TEST_CASE("a fused node stands for what it was fused from, and one that stayed for itself") {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), ir::Dim(8)});
  const Id wide = s.op("Relu", {s.op("Add", {s.op("MatMul", {x, s.random({8, 6})}), s.random({6})})});
  s.out(s.op("Softmax", {wide}));
  CHECK(replaced(s.take()) ==
        std::vector<Named>{{{"Linear"}, {"MatMul", "Add", "Relu"}}, {{"Softmax"}, {"Softmax"}}});
}

TEST_CASE("nodes of a value that the source has not stand together with their reader") {
  Sketch s;
  const Id x = s.in("x", {sym("batch"), ir::Dim(5), ir::Dim(8)});
  const auto head = [&](const std::vector<int64_t>& perm) {
    return s.transpose(s.reshape(s.op("MatMul", {x, s.random({8, 8})}), {-1, 5, 2, 4}), perm);
  };
  const Id scores = s.op("MatMul", {head({0, 2, 1, 3}), head({0, 2, 3, 1})});
  const Id mixed = s.op("MatMul", {s.op("Softmax", {scores}), head({0, 2, 1, 3})});
  s.out(s.reshape(s.transpose(mixed, {0, 2, 1, 3}), {-1, 5, 8}));
  const std::vector<Named> all = replaced(s.take());
  REQUIRE(all.size() == 1);
  CHECK(all[0].nodes == Names{"Linear", "Attention"});
  CHECK(all[0].sources.size() == 14);
}

TEST_CASE("values without a name, or with one that is taken, get names of their own") {
  ir::Builder builder;
  const Id x = builder.input("x", {ir::DType::kF32, {sym("n")}});
  const Id a = *builder.node("Softmax", {x}), b = *builder.node("Softmax", {a}, {}, "x");
  const Id y = *builder.node("Softmax", {b});
  builder.output(y, "y");
  ir::Graph graph = *builder.take();
  name_values(graph);
  CHECK(graph.values[x].name == "x");
  CHECK(graph.values[y].name == "y");
  CHECK(graph.values[a].name == "value1");
  CHECK(graph.values[b].name == "x#2");
  CHECK(replaced(graph).size() == 3);
}

}  // namespace
}  // namespace heddle::plan
