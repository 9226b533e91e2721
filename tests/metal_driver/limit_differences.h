// limit_differences.h: results against what they ought to be.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>

namespace heddle::limits {

// The first element that is not want(i), in words; nothing if there is none.
template <class T, class Want>
std::string differs(std::span<const T> got, Want&& want, double tolerance = 0) {
  for (size_t i = 0; i < got.size(); ++i) {
    const auto wanted = want(static_cast<int64_t>(i));
    const double is = static_cast<double>(got[i]), ought = static_cast<double>(wanted);
    const bool nan = std::isnan(is) && std::isnan(ought);
    if (nan || is == ought || std::abs(is - ought) <= tolerance) continue;
    std::ostringstream said;
    said.precision(10);
    said << "element " << i << " of " << got.size() << " is " << is << " in place of " << ought;
    return said.str();
  }
  return {};
}

}  // namespace heddle::limits
