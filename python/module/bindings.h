// bindings.h: the parts of the extension module, one function each.
#pragma once

#include "gil.h"

namespace heddle::python {

void bind_errors(nanobind::module_& m);
void bind_model(nanobind::module_& m);
void bind_streams(nanobind::module_& m);
void bind_device_tensor(nanobind::module_& m);
void bind_graph(nanobind::module_& m);
void bind_batch_queue(nanobind::module_& m);
void bind_inside(nanobind::module_& m);  // statistics, trace, log, environment

// The Python exception that it is raised as; not SystemExit.
nanobind::object to_exception(const std::exception_ptr& error);

// What heddle.batch_inference put into the caller's context: called in a model's place. Invalid: nothing.
nanobind::object current_batching();

}  // namespace heddle::python
