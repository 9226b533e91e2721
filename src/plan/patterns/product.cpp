#include "plan/patterns/product.h"

#include <cmath>

namespace heddle::plan {

using ir::Node;
using ir::ValueId;

namespace {

// Goes into makers that are read once: what several nodes read is a factor.
void multiply(const Rewriter& rw, ValueId id, Product& product) {
  if (const auto number = rw.scalar(id)) {
    product.number *= *number;
    return;
  }
  const Node* node = rw.maker(id);
  Product inner;
  if (node != nullptr && rw.uses(id) == 1) multiply_node(rw, *node, inner);
  if (inner.factors.empty()) {
    product.factors.push_back(id);
    return;
  }
  product.number *= inner.number;
  product.factors.insert(product.factors.end(), inner.factors.begin(), inner.factors.end());
  product.interior.insert(product.interior.end(), inner.interior.begin(), inner.interior.end());
  product.interior.push_back(node);
}

}  // namespace

void multiply_node(const Rewriter& rw, const Node& node, Product& product) {
  if (node.is("Mul")) {
    multiply(rw, node.inputs[0], product);
    multiply(rw, node.inputs[1], product);
  } else if (node.is("Div")) {
    const auto divisor = rw.scalar(node.inputs[1]);
    if (!divisor || *divisor == 0) return;
    product.number /= *divisor;
    multiply(rw, node.inputs[0], product);
  } else if (node.is("Square")) {
    product.factors.insert(product.factors.end(), 2, node.inputs[0]);
  } else if (node.is("Pow")) {
    const auto exponent = rw.scalar(node.inputs[1]);
    if (exponent == 2.0 || exponent == 3.0) {
      product.factors.insert(product.factors.end(), static_cast<size_t>(*exponent), node.inputs[0]);
    }
  }
}

Product product_of(const Rewriter& rw, ValueId id) {
  Product product;
  multiply(rw, id, product);
  return product;
}

bool near(const Rewriter& rw, ValueId x, double value, double wanted) {
  const ir::DType dtype = rw.dtype(x);
  const double tolerance = dtype == ir::DType::kF16 || dtype == ir::DType::kBF16 ? 4e-3 : 1e-5;
  return std::fabs(value - wanted) <= tolerance * std::fabs(wanted);
}

}  // namespace heddle::plan
