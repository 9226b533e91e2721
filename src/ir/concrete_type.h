// concrete_type.h: the type of a tensor whose shape is known.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace heddle::ir {

struct ConcreteType {
  DType dtype;
  Extents extents;
  friend bool operator==(const ConcreteType&, const ConcreteType&) = default;
};

// Of a graph whose types are all static.
inline std::vector<ConcreteType> concrete_types(const Graph& specialised, const std::vector<ValueId>& ids) {
  std::vector<ConcreteType> types;
  for (const ValueId id : ids) types.push_back({specialised.type(id).dtype, *specialised.type(id).extents()});
  return types;
}

}  // namespace heddle::ir
