#include <utility>

#include "plan/passes/passes.h"
#include "plan/patterns/product.h"

namespace heddle::plan {

using ir::Node;
using ir::ValueId;

namespace {

// clip(x + 3, 0, 6) gives x.
std::optional<ValueId> six_gate(const Rewriter& rw, ValueId id, std::vector<const Node*>& interior) {
  const Node* clip = rw.maker(id, "Clip");
  if (clip == nullptr || !clip->has_input(1) || !clip->has_input(2)) return std::nullopt;
  if (rw.scalar(clip->inputs[1]) != 0.0 || rw.scalar(clip->inputs[2]) != 6.0) return std::nullopt;
  const Node* add = rw.maker(clip->inputs[0], "Add");
  if (add == nullptr) return std::nullopt;
  for (size_t i : {size_t{0}, size_t{1}}) {
    if (rw.scalar(add->inputs[1 - i]) != 3.0) continue;
    interior.insert(interior.end(), {clip, add});
    return add->inputs[i];
  }
  return std::nullopt;
}

// clip(x + 3, 0, 6) / 6
Status match_hard_sigmoid(Rewriter& rw, const Node& root, Product product) {
  const auto x = six_gate(rw, product.factors[0], product.interior);
  if (!x || !near(rw, *x, product.number, 1.0 / 6) || !rw.closed(product.interior, root)) return {};
  if (!(rw.value(*x).type == rw.value(root.outputs[0]).type)) return {};
  return rw.replace(root, "HardSigmoid", {*x}, {{"alpha", 1.0 / 6}, {"beta", 0.5}});
}

// x * hard_sigmoid(x), its gate in one node or spelled out
Status match_hard_swish(Rewriter& rw, const Node& root, const Product& product) {
  for (size_t i : {size_t{0}, size_t{1}}) {
    const ValueId x = product.factors[i];
    std::vector<const Node*> interior = product.interior;
    double number = 1.0 / 6;
    if (const Node* gate = rw.maker(product.factors[1 - i], "HardSigmoid")) {
      const bool fits = gate->inputs[0] == x && near(rw, x, gate->attributes.f64("alpha", 0.2), 1.0 / 6) &&
                        gate->attributes.f64("beta", 0.5) == 0.5;
      if (!fits) continue;
      interior.push_back(gate);
      number = 1;
    } else if (six_gate(rw, product.factors[1 - i], interior) != x) {
      continue;
    }
    if (!near(rw, x, product.number, number) || !rw.closed(interior, root)) continue;
    if (!(rw.value(x).type == rw.value(root.outputs[0]).type)) continue;
    return rw.replace(root, "HardSwish", {x});
  }
  return {};
}

}  // namespace

Result<ir::Graph> fuse_gates(ir::Graph graph) {
  Rewriter rewriter(std::move(graph));
  return rewriter.run([](Rewriter& rw, const Node& node) -> Status {
    if (!node.is("Mul") && !node.is("Div")) return {};
    if (!ir::is_float(rw.dtype(node.outputs[0]))) return {};
    Product product;
    multiply_node(rw, node, product);
    if (product.factors.size() == 1) return match_hard_sigmoid(rw, node, std::move(product));
    return product.factors.size() == 2 ? match_hard_swish(rw, node, product) : Status();
  });
}

}  // namespace heddle::plan
