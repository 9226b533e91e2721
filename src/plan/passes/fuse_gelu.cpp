#include <cmath>
#include <numbers>
#include <utility>

#include "plan/passes/passes.h"
#include "plan/patterns/product.h"

namespace heddle::plan {

using ir::Node;
using ir::ValueId;

namespace {

bool is_power(const Product& p, ValueId x, size_t exponent) {
  if (p.factors.size() != exponent) return false;
  for (ValueId f : p.factors) {
    if (f != x) return false;
  }
  return true;
}

void take(std::vector<const Node*>& interior, const Product& p) {
  interior.insert(interior.end(), p.interior.begin(), p.interior.end());
}

// number + f(x) with the given function; gives f's operand.
struct Shifted {
  const Node* add;
  const Node* function;
};
std::optional<Shifted> one_plus(const Rewriter& rw, ValueId id, std::string_view function) {
  const Node* add = rw.maker(id, "Add");
  if (add == nullptr) return std::nullopt;
  for (size_t i : {size_t{0}, size_t{1}}) {
    const Node* f = rw.maker(add->inputs[i], function);
    if (f != nullptr && rw.scalar(add->inputs[1 - i]) == 1.0) return Shifted{add, f};
  }
  return std::nullopt;
}

// sqrt(2 / pi) * (x + 0.044715 x^3), also as sqrt(2 / pi) * x * (1 + 0.044715 x^2).
bool tanh_operand(const Rewriter& rw, ValueId id, ValueId x, std::vector<const Node*>& interior) {
  Product outer = product_of(rw, id);
  if (!near(rw, x, outer.number, std::sqrt(2 / std::numbers::pi))) return false;
  take(interior, outer);
  const bool factored = outer.factors.size() == 2;
  if (outer.factors.empty() || outer.factors.size() > 2) return false;
  for (size_t i = 0; i < outer.factors.size(); ++i) {
    if (factored && outer.factors[1 - i] != x) continue;
    const Node* add = rw.maker(outer.factors[i], "Add");
    if (add == nullptr) continue;
    for (size_t j : {size_t{0}, size_t{1}}) {
      const ValueId first = add->inputs[j];
      const bool leads = factored ? rw.scalar(first) == 1.0 : first == x;
      const Product cubic = product_of(rw, add->inputs[1 - j]);
      if (!leads || !is_power(cubic, x, factored ? 2 : 3) || !near(rw, x, cubic.number, 0.044715)) continue;
      interior.push_back(add);
      take(interior, cubic);
      return true;
    }
  }
  return false;
}

// 0.5 * x * (1 + f(x)), multiplied in any order.
Status match_gelu(Rewriter& rw, const Node& root) {
  Product product;
  multiply_node(rw, root, product);
  if (product.factors.size() != 2) return {};
  for (size_t i : {size_t{0}, size_t{1}}) {
    const ValueId x = product.factors[i];
    const ValueId gate = product.factors[1 - i];
    if (!ir::is_float(rw.dtype(x)) || !(rw.value(x).type == rw.value(root.outputs[0]).type)) continue;
    if (!near(rw, x, product.number, 0.5)) continue;
    std::vector<const Node*> interior = product.interior;
    const char* approximate = "none";
    auto shifted = one_plus(rw, gate, "Erf");
    if (shifted) {
      const Product operand = product_of(rw, shifted->function->inputs[0]);
      if (!is_power(operand, x, 1) || !near(rw, x, operand.number, std::numbers::sqrt2 / 2)) continue;
      take(interior, operand);
    } else {
      shifted = one_plus(rw, gate, "Tanh");
      if (!shifted || !tanh_operand(rw, shifted->function->inputs[0], x, interior)) continue;
      approximate = "tanh";
    }
    interior.insert(interior.end(), {shifted->add, shifted->function});
    if (!rw.closed(interior, root)) continue;
    return rw.replace(root, "Gelu", {x}, {{"approximate", std::string(approximate)}});
  }
  return {};
}

}  // namespace

Result<ir::Graph> fuse_gelu(ir::Graph graph) {
  Rewriter rewriter(std::move(graph));
  return rewriter.run([](Rewriter& rw, const Node& node) -> Status {
    return node.is("Mul") || node.is("Div") ? match_gelu(rw, node) : Status();
  });
}

}  // namespace heddle::plan
