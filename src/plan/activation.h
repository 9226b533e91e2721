// activation.h: the element-wise nodes that Linear and Conv can apply to their result, by the name of their
// attribute's value.
//
//   Threads    Pure.
#pragma once

#include <string_view>

#include "ir/graph.h"

namespace heddle::plan {

inline std::string_view activation_name(const ir::Node& node) {
  if (node.is("Relu")) return "relu";
  if (node.is("Tanh")) return "tanh";
  if (node.is("Sigmoid")) return "sigmoid";
  if (node.is("Silu")) return "silu";
  if (node.is("Gelu")) return node.attributes.str("approximate", "none") == "tanh" ? "gelu_tanh" : "gelu";
  return {};
}

}  // namespace heddle::plan
