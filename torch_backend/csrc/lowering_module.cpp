// lowering_module.cpp: what Python sees of lowering.h and compiled_model.h.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/python_variable.h>

#include "compiled_model.h"
#include "lowering.h"
#include "process_end.h"
#include "storage.h"
#include "table.h"

namespace py = pybind11;

namespace heddle::torch_backend {
namespace {

using Ragged = std::vector<std::tuple<std::string, int, double>>;  // input, axis, pad

// The classes of heddle/errors.py, as everywhere in Heddle's Python.
void raise_python(std::exception_ptr failure) {
  if (!failure) return;
  try {
    std::rethrow_exception(std::move(failure));
  } catch (const Error& error) {
    const py::object kind = py::module_::import("heddle.errors").attr("BY_CODE")[py::str(name(error.code()))];
    PyErr_SetString(kind.ptr(), error.what());
  }
}

std::unique_ptr<CompiledModel> build(Lowering& lowering, int device_index, const std::string& precision,
                                     bool coalesce, bool exact, const std::optional<Ragged>& ragged,
                                     int max_batch, int max_waiting) {
  ModelOptions options;
  options.device = device_at(static_cast<c10::DeviceIndex>(device_index));
  options.precision = precision;
  options.coalesce = coalesce;
  options.exact = exact;
  options.max_batch = max_batch;
  options.max_waiting = max_waiting;
  if (ragged) {
    options.ragged.emplace();
    for (const auto& [input, axis, pad] : *ragged) options.ragged->push_back({input, axis, pad});
  }
  const FreeGil free;
  return std::make_unique<CompiledModel>(lowering.build(options), lowering.orders());
}

py::object coalescing_stats(const CompiledModel& compiled) {
  const std::optional<CoalescingStats> stats = compiled.model().coalescing_stats();
  if (!stats) return py::none();
  py::dict rows;
  for (size_t n = 0; n < stats->rows.size(); ++n) {
    if (stats->rows[n] != 0) rows[py::int_(n)] = stats->rows[n];
  }
  py::dict told;
  told["calls"] = stats->calls;
  told["batches"] = stats->batches;
  told["rows"] = rows;
  told["exhausted"] = stats->exhausted;
  told["left"] = stats->left;
  told["waiting"] = stats->waiting;
  told["max_batch"] = stats->max_batch;
  told["lanes"] = stats->lanes;
  return told;
}

// A call of a model whose inputs are its arguments and whose one output is its result. None where that is not
// all there is to it: another count, no tensor, a gradient to record.
py::object call_plainly(const CompiledModel& compiled, const py::tuple& arguments) {
  if (arguments.size() != compiled.model().inputs().size()) return py::none();
  std::vector<at::Tensor> inputs;
  inputs.reserve(arguments.size());
  for (const py::handle& argument : arguments) {
    if (!THPVariable_Check(argument.ptr())) return py::none();
    inputs.push_back(THPVariable_Unpack(argument.ptr()));
    if (at::GradMode::is_enabled() && inputs.back().requires_grad()) return py::none();
  }
  at::Tensor result;
  {
    const FreeGil free;
    result = std::move(compiled(inputs)[0]);
  }
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(result)));
}

}  // namespace

void bind_lowering(py::module_& m) {
  py::register_local_exception_translator(&raise_python);
  py::class_<Node>(m, "Node").def_readonly("number", &Node::number);
  py::class_<Lowering>(m, "Lowering")
      .def(py::init<std::string>(), py::arg("name") = "graph")
      .def("input", &Lowering::input, py::arg("name"), py::arg("dtype"), py::arg("dims"))
      .def("constant", &Lowering::constant, py::arg("tensor"))
      .def("call", &Lowering::call, py::arg("op"), py::arg("args"), py::arg("kwargs"), py::arg("types"))
      .def("size_of", &Lowering::size_of, py::arg("tensor"), py::arg("axis"))
      .def("as_number", &Lowering::as_number, py::arg("scalar"))
      .def("reckon", &Lowering::reckon, py::arg("operation"), py::arg("left"), py::arg("right"))
      .def(
          "output",
          [](Lowering& lowering, const Node& node, const std::string& name, std::vector<int64_t> order,
             bool is_the_model_s) { lowering.output(node, name, {std::move(order), is_the_model_s}); },
          py::arg("node"), py::arg("name"), py::arg("order"), py::arg("in_model"))
      .def("type", &Lowering::type, py::arg("node"))
      .def("build", &build, py::arg("device_index") = 0, py::kw_only(), py::arg("precision") = "f32",
           py::arg("coalesce") = true, py::arg("exact") = false, py::arg("ragged") = py::none(),
           py::arg("max_batch") = 64, py::arg("max_waiting") = 4096);
  py::class_<CompiledModel>(m, "CompiledModel")
      .def("__call__", &CompiledModel::operator(), py::arg("inputs"), py::call_guard<FreeGil>())
      .def("call_plainly", &call_plainly, py::arg("arguments"))
      .def(
          "compile",
          [](const CompiledModel& compiled, const std::vector<Shape>& shapes) {
            compiled.model().compile(shapes);
          },
          py::arg("shapes"), py::call_guard<FreeGil>())
      .def_property_readonly("batchable", [](const CompiledModel& c) { return c.model().batchable(); })
      .def("explain_coalescing", [](const CompiledModel& c) { return c.model().explain_coalescing(); })
      .def("coalescing_stats", &coalescing_stats)
      .def("graph", [](const CompiledModel& c) { return c.model().graph(); })
      .def_property_readonly("weight_bytes", [](const CompiledModel& c) { return c.model().weight_bytes(); })
      .def_property_readonly("closed", [](const CompiledModel& c) { return c.model().closed(); })
      .def("close", [](const CompiledModel& c) { c.model().close(); }, py::call_guard<FreeGil>());
  m.def("has_entry", [](const std::string& op) { return find_entry(op) != nullptr; }, py::arg("op"));
}

}  // namespace heddle::torch_backend
