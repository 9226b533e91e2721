// activation.h: the activation names that Linear and Conv carry, and their meaning.
//
//   What       "" is none. The names are the only ones; drivers and passes use the same list. Attributes
//              activation_alpha and activation_beta tune some: leaky_relu's slope below 0, hard_sigmoid's
//              slope and height at 0, clip's bounds.
//   Threads    Pure functions; any thread.
#pragma once

#include "ir/op.h"

namespace heddle::ir {

enum class ActivationKind : uint8_t {
  kNone,
  kRelu,
  kGelu,
  kGeluTanh,
  kTanh,
  kSigmoid,
  kSilu,
  kLeakyRelu,
  kHardSigmoid,
  kHardSwish,
  kClip,
};

struct Activation {
  ActivationKind kind = ActivationKind::kNone;
  double alpha = 0;
  double beta = 0;
};

Result<Activation> activation_of(const Node& node);  // invalid names what would be right
double activate(const Activation& activation, double x);

}  // namespace heddle::ir
