// activation.h: the activation names that Linear and Conv carry, and their meaning.
//
//   What       "" is none. The names are the only ones; drivers and passes use the same list.
//   Threads    Pure functions; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "ir/op.h"

namespace heddle::ir {

enum class Activation : uint8_t { kNone, kRelu, kGelu, kGeluTanh, kTanh, kSigmoid, kSilu };

std::optional<Activation> activation_from_name(std::string_view name);
Result<Activation> activation_of(const Node& node);  // invalid names what would be right
double activate(Activation activation, double x);

}  // namespace heddle::ir
