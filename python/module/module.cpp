// module.cpp: heddle._heddle, the C++ half of the Python package.
#include <nanobind/nanobind.h>

#include "bindings.h"
#include "gil.h"

NB_MODULE(_heddle, m) {
  using namespace heddle::python;
  bind_errors(m);
  bind_process(m);
  bind_streams(m);
  bind_device_tensor(m);
  bind_model(m);
  bind_graph(m);
  bind_batch_queue(m);
  bind_inside(m);
}
