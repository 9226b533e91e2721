// limit_probes.h: a probe for each row of drivers/metal/limits.mm: what this Mac does there.
//
//   What       A probe computes, by MPSGraph itself, what others found wrong or fatal, and says what it got.
//   Sizes      `small` keeps the shape of the question and makes it fit anywhere: it shows that a probe runs,
//              and not what the limit is.
#pragma once

#include <span>
#include <string>

namespace heddle::limits {

struct Probe {
  const char* limit;                // the row
  const char* question;             // what of it
  std::string (*find)(bool small);  // what is wrong, or nothing
};

std::string ask(const Probe& probe, bool small);  // with an autorelease pool of its own
std::span<const Probe> product_probes();          // products, convolutions, attention
std::span<const Probe> operator_probes();         // single operators and their types
std::span<const Probe> size_probes();             // arrays, copies, executables

}  // namespace heddle::limits
