// graph_of_one.h: the graph of one operator, as a model, and where its inputs come from in a call.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "call_key.h"
#include "dynamic_shapes.h"
#include "eager.h"

namespace heddle::torch_backend {

// Where an input of the model comes from in a call.
struct Source {
  int argument;
  int element;                  // of a list; -1: the argument itself
  std::optional<DType> number;  // a number, passed as this
  Form form = Form::as_it_is;
};

struct GraphOfOne {
  Model model;
  std::vector<Source> sources;
};

// `results` as described() has them. Where a dimension is free, the graph knows those of their extents that
// are 0 or 1, which Dims::key() tells, and no others. An entry that has to know one is `unsupported`.
std::shared_ptr<const GraphOfOne> graph_of_one(const Overload& overload, c10::ArrayRef<c10::IValue> arguments,
                                               const Dims& dims,
                                               const std::optional<std::vector<at::Tensor>>& results,
                                               const Device& device);

}  // namespace heddle::torch_backend
