// python_argument.h: an argument of a node of a traced graph, as Python has it, becomes what an entry sees.
//
//   What       The schema's type says how to read it: 2 is an Int, a Number or a tensor's literal. Devices,
//              layouts, memory formats and generators mean nothing in a traced graph and become None.
//   Node       Stands in Python for a value of the graph under construction: in place of a tensor, or, when
//              `number` is set, of a size or another number that is known when the model runs.
//   Threads    The caller holds the GIL.
#pragma once

#include <ATen/core/function_schema.h>
#include <torch/csrc/utils/pybind.h>

#include "call.h"

namespace heddle::torch_backend {

struct Node {
  Value value;
  bool number = false;  // rank 0, of dtype i64, f64 or boolean
};

// One Argument for each of the schema's, defaults filled in. TypeError, as PyTorch's, where they do not fit.
std::vector<Argument> from_python(const c10::FunctionSchema& schema, const pybind11::sequence& positional,
                                  const pybind11::dict& named, GraphBuilder& graph);

// A rank-0 constant of dtype i64, f64 or boolean, as Python's number is.
Value literal_of(pybind11::handle number, GraphBuilder& graph);
bool is_number(pybind11::handle object);

}  // namespace heddle::torch_backend
