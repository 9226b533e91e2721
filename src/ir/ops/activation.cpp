#include "ir/ops/activation.h"

#include <cmath>
#include <numbers>

namespace heddle::ir {

std::optional<Activation> activation_from_name(std::string_view name) {
  constexpr std::string_view kNames[] = {"", "relu", "gelu", "gelu_tanh", "tanh", "sigmoid", "silu"};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<Activation>(i);
  }
  return std::nullopt;
}

Result<Activation> activation_of(const Node& node) {
  const std::string name = node.attributes.str("activation");
  if (const std::optional<Activation> known = activation_from_name(name)) return *known;
  return Status::invalid("attribute 'activation' is '", name,
                         "'; it has to be '', 'relu', 'gelu', 'gelu_tanh', 'tanh', 'sigmoid' or 'silu'");
}

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return x < 0 ? 0 : x;  // NaN stays
    case Activation::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

}  // namespace heddle::ir
