// Chains of element-wise operators: as few launches as kernels/chain.h allows.
#include "drivers/cuda/lowering/chain_program.h"
#include "ir/op.h"

namespace heddle::cuda {
namespace {

using Nodes = std::span<const ir::Node>;

// The body with the types that the node's operands give it.
Result<ir::Graph> typed_body(const Lowering& l) {
  ir::Graph body = *l.attributes().graph("body");
  for (size_t i = 0; i < l.inputs.size(); ++i) body.values[body.inputs[i]].type = l.value(i).type;
  for (const ir::Node& inner : body.nodes) {
    std::vector<const ir::Value*> operands;
    for (const ir::ValueId id : inner.inputs)
      operands.push_back(id == ir::kNoValue ? nullptr : &body.values[id]);
    HEDDLE_TRY_ASSIGN(const std::vector<ir::Value> made, ir::infer(inner, operands));
    for (size_t i = 0; i < made.size(); ++i) body.values[inner.outputs[i]].type = made[i].type;
  }
  return body;
}

// The longest program that begins with the first of `nodes`, and how many of them it takes; 0: none does.
std::pair<size_t, ChainProgram> longest(const ir::Graph& body, Nodes nodes) {
  std::pair<size_t, ChainProgram> best{0, {}};
  const auto extents = [&](size_t i) { return *body.type(nodes[i].outputs[0]).extents(); };
  for (size_t end = 0; end < nodes.size() && extents(end) == extents(0); ++end) {
    std::optional<ChainProgram> program = assemble_chain(body, nodes.first(end + 1));
    if (!program.has_value()) break;
    best = {end + 1, *std::move(program)};
  }
  return best;
}

// The body with every part that is a program in a chain of its own.
ir::Graph cut(const ir::Graph& body) {
  ir::Graph pieces = body;
  pieces.nodes.clear();
  for (size_t begin = 0; begin < body.nodes.size();) {
    const Nodes rest = Nodes(body.nodes).subspan(begin);
    const auto [taken, program] = longest(body, rest);
    begin += std::max<size_t>(taken, 1);
    if (taken < 2) {
      pieces.nodes.push_back(rest[0]);
      continue;
    }
    auto piece = std::make_shared<ir::Graph>(body);
    piece->nodes.assign(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(taken));
    piece->inputs = program.sources;
    piece->outputs = program.results;
    pieces.nodes.push_back({ir::find_op("Elementwise"),
                            rest[taken - 1].name,
                            program.sources,
                            program.results,
                            {{"body", std::shared_ptr<const ir::Graph>(std::move(piece))}}});
  }
  return pieces;
}

Status lower_chain(Lowering& l) {
  HEDDLE_TRY_ASSIGN(const ir::Graph body, typed_body(l));
  const auto [taken, program] = longest(body, body.nodes);
  const bool whole = taken == body.nodes.size() && program.results.size() == body.outputs.size();
  if (whole) return launch_chain(l, body, program, body.inputs, body.outputs);
  return l.emit.graph(cut(body), l.inputs, l.outputs);
}

}  // namespace

std::span<const LoweringEntry> chain_lowerings() {
  static constexpr LoweringEntry kEntries[] = {{"Elementwise", lower_chain}};
  return kEntries;
}

}  // namespace heddle::cuda
