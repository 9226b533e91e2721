// model_call.h: what a call from Python is made of, for those who wait for it and those who submit it.
#pragma once

#include <vector>

#include "arrays.h"

namespace heddle::python {

// Positional arrays first, then by name. `timeout` and `stream` are the call's own.
std::vector<nb::handle> arrange(const Model& model, const nb::args& args, const nb::kwargs& named,
                                CallOptions& options);
std::vector<Tensor> to_tensors(const Model& model, const std::vector<nb::handle>& arrays);
Kind kind_of(const std::vector<nb::handle>& arrays);
nb::object wrap(const Kind& kind, const std::vector<Tensor>& outputs);

void bind_submitting(nb::module_& m, nb::class_<Model>& model);  // submitting.cpp

}  // namespace heddle::python
