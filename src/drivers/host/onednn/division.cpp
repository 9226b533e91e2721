#include "drivers/host/onednn/division.h"

#include <algorithm>

namespace heddle::host {

bool is_reference(std::string_view implementation) {
  const size_t nested = implementation.find('+');
  if (nested != std::string_view::npos && is_reference(implementation.substr(nested + 1))) return true;
  return implementation.starts_with("ref");
}

std::string path_of(const std::vector<Ref<const Primitive>>& primitives, size_t pieces) {
  std::vector<std::string_view> names;
  for (const Ref<const Primitive>& primitive : primitives) {
    if (std::ranges::find(names, primitive->implementation()) == names.end())
      names.emplace_back(primitive->implementation());
  }
  std::string path = "oneDNN ";
  for (size_t i = 0; i < names.size(); ++i) path += text(i == 0 ? "" : ", ", names[i]);
  if (pieces > 1) path += text(" in ", pieces, " pieces");
  if (std::ranges::any_of(names, is_reference))
    path += ": its slow reference, because it has no kernel for this shape";
  return path;
}

}  // namespace heddle::host
