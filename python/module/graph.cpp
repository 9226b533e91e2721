// graph.cpp: GraphBuilder.
#include <nanobind/nanobind.h>

#include "arrays.h"
#include "bindings.h"
#include "gil.h"
#include "options.h"

namespace heddle::python {
namespace {

using namespace nb::literals;
using Value = GraphBuilder::Value;

DType dtype_named(const std::string& word) {
  for (int i = 0; i <= static_cast<int>(DType::boolean); ++i) {
    if (name(static_cast<DType>(i)) == word) return static_cast<DType>(i);
  }
  throw Error(ErrorCode::invalid,
              "'" + word + "' is no dtype; they are f32, f16, bf16, f64, i8, u8, i16, i32, i64 and bool");
}

std::vector<GraphBuilder::DimArgument> to_dims(nb::handle shape) {
  std::vector<GraphBuilder::DimArgument> dims;
  for (nb::handle extent : nb::borrow<nb::object>(shape)) {
    if (PyUnicode_Check(extent.ptr())) {
      dims.emplace_back(std::string(nb::borrow<nb::str>(extent).c_str()));
    } else {
      dims.emplace_back(nb::cast<int64_t>(extent));
    }
  }
  return dims;
}

Attribute to_attribute(const std::string& key, nb::handle value) {
  if (PyBool_Check(value.ptr()) || PyLong_Check(value.ptr())) return nb::cast<int64_t>(value);
  if (PyFloat_Check(value.ptr())) return nb::cast<double>(value);
  if (PyUnicode_Check(value.ptr())) return nb::cast<std::string>(value);
  if (PyList_Check(value.ptr()) || PyTuple_Check(value.ptr())) {
    bool integers = true;
    for (nb::handle item : nb::borrow<nb::object>(value)) integers = integers && PyLong_Check(item.ptr());
    if (integers) return nb::cast<std::vector<int64_t>>(value);
    return nb::cast<std::vector<double>>(value);
  }
  return to_tensor(value, "attribute " + key);
}

AttributeList to_attributes(const nb::kwargs& named) {
  AttributeList list;
  for (auto [key, value] : named) {
    const auto word = nb::cast<std::string>(key);
    list.emplace_back(word, to_attribute(word, value));
  }
  return list;
}

std::vector<Value> to_values(const nb::args& args) {
  std::vector<Value> values;
  for (nb::handle arg : args) values.push_back(arg.is_none() ? GraphBuilder::absent() : nb::cast<Value>(arg));
  return values;
}

}  // namespace

void bind_graph(nb::module_& m) {
  nb::class_<Value>(m, "Value");
  nb::class_<GraphBuilder>(m, "GraphBuilder")
      .def(nb::init<std::string>(), "name"_a = "graph")
      .def(
          "input",
          [](GraphBuilder& g, const std::string& name, const std::string& dtype, nb::handle shape) {
            return g.input(name, dtype_named(dtype), to_dims(shape));
          },
          "name"_a, "dtype"_a, "shape"_a, nb::lock_self())
      .def(
          "constant",
          [](GraphBuilder& g, nb::handle array) { return g.constant(to_tensor(array, "constant")); },
          "array"_a, nb::lock_self())
      .def(
          "add",
          [](GraphBuilder& g, const std::string& op, const nb::args& inputs, const nb::kwargs& attributes) {
            return g.add(op, to_values(inputs), to_attributes(attributes));
          },
          "op"_a, "inputs"_a, "attributes"_a, nb::lock_self())
      .def(
          "add_multiple",
          [](GraphBuilder& g, const std::string& op, size_t outputs, const nb::args& inputs,
             const nb::kwargs& attributes) {
            return g.add_multiple(op, to_values(inputs), outputs, to_attributes(attributes));
          },
          "op"_a, "outputs"_a, "inputs"_a, "attributes"_a, nb::lock_self())
      .def("output", &GraphBuilder::output, "value"_a, "name"_a, nb::lock_self())
      .def("type", &GraphBuilder::type, "value"_a, nb::lock_self())
      .def(
          "build",
          [](GraphBuilder& g, nb::handle device, const nb::kwargs& named) {
            ModelOptions options = to_model_options(named);
            if (options.devices.empty() || !device.is_none()) options.device = to_device(device);
            return without_gil([&] { return g.build(options); });
          },
          "device"_a = nb::none(), "options"_a)
      .def(
          "evaluate",
          [](const GraphBuilder& g, const nb::args& arrays) {
            std::vector<Tensor> inputs;
            for (nb::handle array : arrays) inputs.push_back(to_tensor(array, "input"));
            const std::vector<Tensor> outputs = without_gil([&] { return g.evaluate(inputs); });
            nb::list list;
            for (const Tensor& output : outputs) list.append(Kind::numpy().wrap(output));
            return nb::tuple(list);
          },
          "inputs"_a);
}

}  // namespace heddle::python
