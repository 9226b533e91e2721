// bindings.h: the parts of the extension module, one function each.
#pragma once

#include "gil.h"

namespace heddle::python {

void bind_errors(nanobind::module_& m);
void bind_model(nanobind::module_& m);
void bind_streams(nanobind::module_& m);
void bind_graph(nanobind::module_& m);
void bind_inside(nanobind::module_& m);  // statistics, trace, log, environment

}  // namespace heddle::python
