// model.cpp: Model: load, call, ports, compile, look inside, close.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>

#include "arrays.h"
#include "bindings.h"
#include "device_tensor.h"
#include "gil.h"
#include "model_call.h"
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

}  // namespace

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

std::vector<Tensor> to_tensors(const Model& model, const std::vector<nb::handle>& arrays) {
  std::vector<Tensor> tensors;
  tensors.reserve(arrays.size());
  const Device device = model.device();
  for (size_t i = 0; i < arrays.size(); ++i)
    tensors.push_back(to_tensor(arrays[i], model.inputs()[i].name, &device));
  return tensors;
}

Kind kind_of(const std::vector<nb::handle>& arrays) {
  return arrays.empty() ? Kind::numpy() : Kind::of(arrays[0]);
}

nb::object wrap(const Kind& kind, const std::vector<Tensor>& outputs) {
  if (outputs.size() == 1) return kind.wrap(outputs[0]);
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(outputs.size())));
  for (size_t i = 0; i < outputs.size(); ++i) {
    PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i), kind.wrap(outputs[i]).release().ptr());
  }
  return tuple;
}

namespace {

// Another library's memory was lent by an array whose library does not get the results: nothing would keep it
// from writing there while the model still reads.
bool lends_to_no_taker(const std::vector<nb::handle>& arrays) {
  return std::any_of(arrays.begin(), arrays.end(), [&](nb::handle array) {
    return is_on_a_gpu(array) && !array.type().is(arrays[0].type());
  });
}

// A call that is known to be shorter keeps the GIL: with other threads about, giving it up and getting it
// back costs more, and they would run no more calls meanwhile than this one. Half of what it costs on two
// processors, where it is cheapest.
constexpr std::chrono::microseconds kHandOver{4};

nb::object call(const Model& model, const nb::args& args, const nb::kwargs& named) {
  // Python code runs below these frames too: a batch queue's, and that of the arrays' libraries.
  const Entry entry;
  if (const nb::object batching = current_batching(); batching.is_valid())
    return batching(nb::find(model), args, named);
  CallOptions options;
  const std::vector<nb::handle> arrays = arrange(model, args, named, options);
  const std::vector<Tensor> inputs = to_tensors(model, arrays);
  // Tensors in a device's own memory stay there: the call goes to the thread's stream, and does not block.
  const bool stays = std::any_of(inputs.begin(), inputs.end(), [](const Tensor& t) { return !t.on_host(); });
  if (stays && !options.stream) options.stream = current_stream(model.device_of(inputs));
  if (!options.stream) {
    if (const auto outputs = model.try_brief(inputs, kHandOver)) return wrap(kind_of(arrays), *outputs);
  }
  std::optional<PacedReturn> pace;
  const bool awaited = stays && lends_to_no_taker(arrays);
  std::vector<Tensor> outputs = without_gil([&] {
    pace.emplace();
    std::vector<Tensor> results = model(inputs, options);
    for (const Tensor& result : results) {
      if (awaited || result.on_host()) result.wait(options.timeout);
    }
    pace->await_turn();
    return results;
  });
  pace->passed();
  return wrap(kind_of(arrays), outputs);
}

std::vector<std::vector<Tensor>> to_requests(const Model& model, const nb::list& requests,
                                             std::vector<nb::object>& kinds) {
  std::vector<std::vector<Tensor>> inputs;
  for (const nb::handle request : requests) {
    CallOptions none;
    const nb::args args = nb::borrow<nb::args>(request);
    const std::vector<nb::handle> arrays = arrange(model, args, nb::borrow<nb::kwargs>(nb::dict()), none);
    inputs.push_back(to_tensors(model, arrays));
    kinds.push_back(kind_of(arrays).as_object());
  }
  return inputs;
}

// requests: tuples of arrays. [(results, error)], one of them None.
nb::list run_together(const Model& model, const nb::list& requests, const nb::object& formed) {
  const Entry entry;
  std::vector<nb::object> kinds;
  const std::vector<std::vector<Tensor>> inputs = to_requests(model, requests, kinds);
  formed();  // staging is part of the run: it needs no GIL
  const std::vector<Model::Outcome> outcomes = without_gil([&] { return model.run_together(inputs); });
  nb::list list;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].error != nullptr) {
      list.append(nb::make_tuple(nb::none(), to_exception(outcomes[i].error)));
    } else {
      list.append(nb::make_tuple(wrap(Kind(kinds[i]), outcomes[i].results), nb::none()));
    }
  }
  return list;
}

// The call's arrays in the order of the model's inputs.
nb::tuple arranged(const Model& model, const nb::args& args, const nb::kwargs& named) {
  CallOptions none;
  nb::list list;
  for (const nb::handle array : arrange(model, args, named, none)) list.append(array);
  return nb::tuple(list);
}

nb::object group(const Model& model, const nb::args& args) {
  CallOptions none;
  const std::vector<nb::handle> arrays = arrange(model, args, nb::borrow<nb::kwargs>(nb::dict()), none);
  return nb::tuple(nb::cast(model.group(to_tensors(model, arrays))));
}

std::vector<Shape> to_shapes(const Model& model, nb::handle shapes) {
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
  return list;
}

void compile(const Model& model, nb::handle shapes) {
  const std::vector<Shape> list = to_shapes(model, shapes);
  without_gil([&] { model.compile(list); });
}

// {"input_ids": 1} or {"input_ids": (1, 0)}: the axis, and the pad value.
std::vector<RaggedInput> to_ragged(nb::handle value) {
  if (!PyDict_Check(value.ptr())) {
    throw Error(ErrorCode::invalid,
                "ragged must be a dict of input names to an axis or to (axis, pad value), such as "
                "{'input_ids': (1, 0)}");
  }
  std::vector<RaggedInput> ragged;
  for (auto [name, place] : nb::borrow<nb::dict>(value)) {
    RaggedInput input{nb::cast<std::string>(name), 1, 0};
    if (PyTuple_Check(place.ptr()) && nb::len(place) == 2) {
      input.axis = nb::cast<int>(place[0]);
      input.pad = nb::cast<double>(nb::float_(place[1]));
    } else {
      input.axis = nb::cast<int>(place);
    }
    ragged.push_back(std::move(input));
  }
  return ragged;
}

Model load(const std::string& path, const nb::kwargs& named) {
  const ModelOptions options = to_model_options(named);
  return without_gil([&] { return Model::load(path, options); });
}

Model load_bytes(const nb::bytes& onnx, const nb::kwargs& named) {
  const ModelOptions options = to_model_options(named);
  const auto* data = reinterpret_cast<const std::byte*>(onnx.c_str());
  return without_gil([&] { return Model::load_bytes({data, onnx.size()}, options); });
}

nb::object coalescing_stats(const Model& model) {
  const std::optional<CoalescingStats> stats = model.coalescing_stats();
  if (!stats) return nb::none();
  nb::dict rows;
  for (size_t n = 0; n < stats->rows.size(); ++n) {
    if (stats->rows[n] != 0) rows[nb::int_(n)] = stats->rows[n];
  }
  nb::dict out;
  out["calls"] = stats->calls;
  out["batches"] = stats->batches;
  out["rows"] = rows;
  out["exhausted"] = stats->exhausted;
  out["left"] = stats->left;
  out["waiting"] = stats->waiting;
  out["max_batch"] = stats->max_batch;
  out["lanes"] = stats->lanes;
  return out;
}

template <class T>
nb::object or_none(const std::optional<T>& value) {
  return value ? nb::cast(*value) : nb::none();
}

nb::dict plan(const Model& model, nb::handle shapes, const Rates& rates) {
  const std::vector<Shape> list = to_shapes(model, shapes);
  const Plan plan = without_gil([&] { return model.plan(list, rates); });
  nb::list nodes;
  for (const PlannedNode& node : plan.nodes) {
    nb::dict d;
    d["op"] = node.op;
    d["name"] = node.name;
    d["outputs"] = node.outputs;
    d["step"] = node.step == 0 ? nb::none() : nb::cast(node.step);
    d["flops"] = or_none(node.flops);
    d["bytes"] = or_none(node.bytes);
    d["estimated_s"] = or_none(node.estimated_s);
    d["path"] = node.path;
    nodes.append(d);
  }
  nb::dict d;
  d["arena_bytes"] = or_none(plan.arena_bytes);
  d["arena_bytes_apart"] = plan.arena_bytes_apart;
  d["slot_bytes"] = or_none(plan.slot_bytes);
  d["weights"] = plan.weights;
  d["launches"] = plan.launches;
  d["nodes"] = nodes;
  return d;
}

nb::list replacements(const Model& model) {
  nb::list list;
  for (const Replacement& each : model.replacements()) {
    nb::dict d;
    d["name"] = each.name;
    d["nodes"] = each.nodes;
    d["sources"] = each.sources;
    list.append(d);
  }
  return list;
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

// The name of a kind: all of them.
std::vector<Device> to_devices(nb::handle value) {
  if (PyUnicode_Check(value.ptr())) return Device::all(nb::borrow<nb::str>(value).c_str());
  std::vector<Device> devices;
  for (const nb::handle each : nb::borrow<nb::object>(value)) devices.push_back(to_device(each));
  if (devices.empty()) throw Error(ErrorCode::invalid, "a model needs a device; `devices` names none");
  return devices;
}

}  // namespace

ModelOptions to_model_options(const nb::kwargs& named) {
  ModelOptions options;
  for (auto [key, value] : named) {
    const std::string_view word = nb::borrow<nb::str>(key).c_str();
    if (word == "device") {
      options.device = to_device(value);
    } else if (word == "devices") {
      if (!value.is_none()) options.devices = to_devices(value);
    } else if (word == "precision") {
      options.precision = nb::cast<std::string>(value);
    } else if (word == "coalesce") {
      options.coalesce = nb::cast<bool>(value);
    } else if (word == "exact") {
      options.exact = nb::cast<bool>(value);
    } else if (word == "ragged") {
      if (!value.is_none()) options.ragged = to_ragged(value);
    } else if (word == "max_batch") {
      options.max_batch = nb::cast<int>(value);
    } else if (word == "max_waiting") {
      options.max_waiting = nb::cast<int>(value);
    } else if (word == "keep_source") {
      options.keep_source = nb::cast<bool>(value);
    } else if (word == "latency_bound") {
      options.latency_bound = to_timeout(value);
    } else {
      throw nb::type_error(("unexpected keyword argument '" + std::string(word) + "'").c_str());
    }
  }
  return options;
}

void bind_model(nb::module_& m) {
  nb::class_<Port>(m, "Port")
      .def_ro("name", &Port::name)
      .def_prop_ro("dtype", [](const Port& p) { return std::string(name(p.dtype)); })
      .def_prop_ro("shape", port_shape)
      .def("__repr__", describe);
  nb::class_<Model> model(m, "Model", nb::is_weak_referenceable());
  bind_submitting(m, model);
  model.def("__call__", call)
      .def("_run_together", run_together, "requests"_a, "formed"_a)
      .def("_arranged", arranged)
      .def("_group", group)
      .def_prop_ro("inputs", &Model::inputs)
      .def_prop_ro("outputs", &Model::outputs)
      .def_prop_ro("batchable", &Model::batchable)
      .def_prop_ro("why_not_batchable", &Model::why_not_batchable)
      .def("explain_coalescing", &Model::explain_coalescing)
      .def("coalescing_stats", coalescing_stats)
      .def_prop_ro("device", &Model::device)
      .def_prop_ro("devices", &Model::devices)
      .def_prop_ro("weight_bytes", &Model::weight_bytes)
      .def_prop_ro("closed", &Model::closed)
      .def("graph", &Model::graph)
      .def("source_graph", &Model::source_graph)
      .def("replacements", replacements)
      .def("plan", plan, "shapes"_a, "rates"_a)
      .def("compile", compile, "shapes"_a)
      .def("close", [](const Model& model) { without_gil([&] { model.close(); }); })
      .def("__enter__", [](nb::object self) { return self; })
      .def("__exit__", [](const Model& model, const nb::args&) { without_gil([&] { model.close(); }); });
  m.def("load", load, "path"_a, "options"_a);
  m.def("load_bytes", load_bytes, "onnx"_a, "options"_a);
  nb::class_<Rates>(m, "Rates")
      .def_ro("flops_per_s", &Rates::flops_per_s)
      .def_ro("cached_bytes_per_s", &Rates::cached_bytes_per_s)
      .def_ro("memory_bytes_per_s", &Rates::memory_bytes_per_s)
      .def_ro("cached_bytes", &Rates::cached_bytes)
      .def_ro("step_s", &Rates::step_s);
  m.def(
      "measure_rates",
      [](const Device& device, const std::string& precision) {
        return without_gil([&] {
          ModelOptions options;
          options.device = device;
          options.precision = precision;
          return measure_rates(options);
        });
      },
      "device"_a, "precision"_a);
}

}  // namespace heddle::python
