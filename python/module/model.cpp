// model.cpp: Model: load, call, ports, compile, close.
#include <nanobind/nanobind.h>

#include <cmath>

#include "arrays.h"
#include "bindings.h"
#include "gil.h"
#include "options.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

std::string port_names(const std::vector<Port>& ports) {
  std::string text;
  for (const Port& port : ports) text += (text.empty() ? "'" : ", '") + port.name + "'";
  return text;
}

size_t port_index(const std::vector<Port>& ports, std::string_view name) {
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].name == name) return i;
  }
  throw Error(ErrorCode::invalid,
              "the model has no input '" + std::string(name) + "'; its inputs are " + port_names(ports));
}

// Positional arrays first, then by name. `timeout` and `stream` are the call's own.
std::vector<nb::handle> arrange(const Model& model, const nb::args& args, const nb::kwargs& named,
                                CallOptions& options) {
  const std::vector<Port>& ports = model.inputs();
  if (args.size() > ports.size()) {
    throw Error(ErrorCode::invalid, "got " + std::to_string(args.size()) + " arrays for " +
                                        std::to_string(ports.size()) + " inputs: " + port_names(ports));
  }
  std::vector<nb::handle> arrays(ports.size());
  for (size_t i = 0; i < args.size(); ++i) arrays[i] = args[i];
  for (auto [key, value] : named) {
    const std::string_view word = nb::borrow<nb::str>(key).c_str();
    if (word == "timeout") {
      options.timeout = to_timeout(value);
    } else if (word == "stream") {
      if (!value.is_none()) options.stream = nb::cast<Stream>(value);
    } else {
      const size_t i = port_index(ports, word);
      if (arrays[i].is_valid())
        throw Error(ErrorCode::invalid, "input '" + ports[i].name + "' was given twice");
      arrays[i] = value;
    }
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (!arrays[i].is_valid())
      throw Error(ErrorCode::invalid,
                  "input '" + ports[i].name + "' is missing; inputs are " + port_names(ports));
  }
  return arrays;
}

nb::object call(const Model& model, const nb::args& args, const nb::kwargs& named) {
  if (const nb::object batching = current_batching(); batching.is_valid())
    return batching(nb::find(model), args, named);
  CallOptions options;
  const std::vector<nb::handle> arrays = arrange(model, args, named, options);
  std::vector<Tensor> inputs;
  inputs.reserve(arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) inputs.push_back(to_tensor(arrays[i], model.inputs()[i].name));
  std::vector<Tensor> outputs = without_gil([&] {
    std::vector<Tensor> results = model(inputs, options);
    for (const Tensor& result : results) result.wait(options.timeout);
    return results;
  });
  const Kind kind = arrays.empty() ? Kind::numpy() : Kind::of(arrays[0]);
  if (outputs.size() == 1) return kind.wrap(outputs[0]);
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(outputs.size())));
  for (size_t i = 0; i < outputs.size(); ++i) {
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), kind.wrap(outputs[i]).release().ptr());
  }
  return tuple;
}

void compile(const Model& model, nb::handle shapes) {
  std::vector<Shape> list(model.inputs().size());
  if (PyDict_Check(shapes.ptr())) {
    const auto by_name = nb::borrow<nb::dict>(shapes);
    if (by_name.size() != list.size()) {
      throw Error(ErrorCode::invalid, "shapes are needed for every input: " + port_names(model.inputs()));
    }
    for (auto [key, shape] : by_name) {
      const auto word = nb::cast<std::string>(key);
      list[port_index(model.inputs(), word)] = to_shape(shape, "the shape of '" + word + "'");
    }
  } else {
    if (!PySequence_Check(shapes.ptr()) || static_cast<size_t>(nb::len(shapes)) != list.size()) {
      throw Error(ErrorCode::invalid,
                  "shapes must be one sequence of integers per input, or a dict of them: " +
                      port_names(model.inputs()));
    }
    for (size_t i = 0; i < list.size(); ++i) list[i] = to_shape(nb::object(shapes[i]), "a shape");
  }
  without_gil([&] { model.compile(list); });
}

Model load(const std::string& path, const Device& device, const std::string& precision) {
  return without_gil([&] { return Model::load(path, {device, precision}); });
}

Model load_bytes(const nb::bytes& onnx, const Device& device, const std::string& precision) {
  const auto* data = reinterpret_cast<const std::byte*>(onnx.c_str());
  return without_gil([&] { return Model::load_bytes({data, onnx.size()}, {device, precision}); });
}

std::string describe(const Port& port) {
  std::string text = port.name + ": " + std::string(name(port.dtype)) + "[";
  for (size_t i = 0; i < port.shape.size(); ++i) text += (i == 0 ? "" : ", ") + port.shape[i];
  return text + "]";
}

nb::object port_shape(const Port& port) {
  nb::list list;
  for (const std::string& extent : port.shape) {
    const bool number = extent.find_first_not_of("0123456789") == std::string::npos;
    if (number) {
      list.append(std::stoll(extent));
    } else {
      list.append(extent);
    }
  }
  return nb::tuple(list);
}

}  // namespace

void bind_model(nb::module_& m) {
  nb::class_<Port>(m, "Port")
      .def_ro("name", &Port::name)
      .def_prop_ro("dtype", [](const Port& p) { return std::string(name(p.dtype)); })
      .def_prop_ro("shape", port_shape)
      .def("__repr__", describe);
  nb::class_<Model>(m, "Model", nb::is_weak_referenceable())
      .def("__call__", call)
      .def_prop_ro("inputs", &Model::inputs)
      .def_prop_ro("outputs", &Model::outputs)
      .def_prop_ro("batchable", &Model::batchable)
      .def_prop_ro("why_not_batchable", &Model::why_not_batchable)
      .def_prop_ro("device", &Model::device)
      .def_prop_ro("weight_bytes", &Model::weight_bytes)
      .def_prop_ro("closed", &Model::closed)
      .def("graph", &Model::graph)
      .def("compile", compile, "shapes"_a)
      .def("close", [](const Model& model) { without_gil([&] { model.close(); }); })
      .def("__enter__", [](nb::object self) { return self; })
      .def("__exit__", [](const Model& model, const nb::args&) { without_gil([&] { model.close(); }); });
  m.def("load", load, "path"_a, "device"_a, "precision"_a);
  m.def("load_bytes", load_bytes, "onnx"_a, "device"_a, "precision"_a);
}

}  // namespace heddle::python
