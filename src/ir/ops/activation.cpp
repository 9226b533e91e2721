#include "ir/ops/activation.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace heddle::ir {

namespace {

constexpr std::string_view kNames[] = {"",     "relu",       "gelu",         "gelu_tanh",  "tanh", "sigmoid",
                                       "silu", "leaky_relu", "hard_sigmoid", "hard_swish", "clip"};

}  // namespace

Result<Activation> activation_of(const Node& node) {
  const std::string name = node.attributes.str("activation");
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] != name) continue;
    return Activation{static_cast<ActivationKind>(i), node.attributes.f64("activation_alpha"),
                      node.attributes.f64("activation_beta")};
  }
  return Status::invalid("attribute 'activation' is '", name,
                         "'; it has to be '', 'relu', 'gelu', 'gelu_tanh', 'tanh', 'sigmoid', 'silu', "
                         "'leaky_relu', 'hard_sigmoid', 'hard_swish' or 'clip'");
}

double activate(const Activation& activation, double x) {
  switch (activation.kind) {
    case ActivationKind::kNone:
      return x;
    case ActivationKind::kRelu:
      return x < 0 ? 0 : x;  // NaN stays
    case ActivationKind::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case ActivationKind::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case ActivationKind::kTanh:
      return std::tanh(x);
    case ActivationKind::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case ActivationKind::kSilu:
      return x / (1 + std::exp(-x));
    case ActivationKind::kLeakyRelu:
      return x < 0 ? activation.alpha * x : x;
    case ActivationKind::kHardSigmoid:
      return std::clamp(activation.alpha * x + activation.beta, 0.0, 1.0);
    case ActivationKind::kHardSwish:
      return x * std::clamp(x / 6 + 0.5, 0.0, 1.0);
    case ActivationKind::kClip:
      return std::clamp(x, activation.alpha, activation.beta);
  }
  return x;
}

}  // namespace heddle::ir
