#include "lowering.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <charconv>

#include "storage.h"
#include "table.h"

namespace py = pybind11;

namespace heddle::torch_backend {
namespace {

const c10::FunctionSchema& schema_of(const std::string& op) {
  const size_t dot = op.find('.', op.find("::"));
  const c10::OperatorName name(op.substr(0, dot), dot == std::string::npos ? "" : op.substr(dot + 1));
  const auto found = c10::Dispatcher::singleton().findSchema(name);
  if (!found) throw Error(ErrorCode::invalid, "PyTorch has no operator " + op);
  return found->schema();
}

}  // namespace

Node Lowering::input(const std::string& name, at::ScalarType dtype, const std::vector<Dim>& dims) {
  std::vector<GraphBuilder::DimArgument> shape;
  for (const Dim& dim : dims) {
    std::visit([&shape](const auto& extent) { shape.emplace_back(extent); }, dim);
  }
  return {graph_.input(name, to_heddle(dtype), shape)};
}

Node Lowering::constant(const at::Tensor& tensor) { return {graph_.constant(to_heddle(tensor))}; }

Lowering::Results Lowering::call(const std::string& op, const py::sequence& positional, const py::dict& named,
                                 const std::vector<std::pair<at::ScalarType, Extents>>& types) {
  const Entry* const entry = find_entry(op);
  if (entry == nullptr) throw Error(ErrorCode::unsupported, op + " has no entry in Heddle's table");
  std::vector<Type> expected;
  for (const auto& [dtype, shape] : types) expected.push_back({to_heddle(dtype), shape});
  Call call(op, graph_, from_python(schema_of(op), positional, named, graph_), expected, default_float(),
            nullptr, has_numbers_);
  Results results;
  for (const Value& value : entry->build(call)) {
    if (value.id == GraphBuilder::absent().id) {
      results.emplace_back();
    } else {
      const size_t i = results.size();
      results.push_back(Node{i < expected.size() ? call.cast(value, expected[i].dtype) : value});
    }
  }
  return results;
}

std::variant<int64_t, Node> Lowering::size_of(const Node& tensor, int axis) {
  const Port port = graph_.port(tensor.value);
  const auto rank = static_cast<int>(port.shape.size());
  const int front = from_front(axis, rank);
  if (front < 0 || front >= rank) throw Error(ErrorCode::internal, "size_of: no such axis");
  const std::string& dim = port.shape[static_cast<size_t>(front)];
  int64_t known = 0;
  const auto [end, error] = std::from_chars(dim.data(), dim.data() + dim.size(), known);
  if (error == std::errc() && end == dim.data() + dim.size()) return known;
  const auto [place, fresh] = sizes_.try_emplace({tensor.value.id, front}, GraphBuilder::absent());
  if (fresh) {
    const Value index = graph_.constant(Tensor::of<int64_t>({}, {front}));
    place->second = add("Gather", {add("Shape", {tensor.value}), index});
  }
  return Node{place->second, true};
}

Value Lowering::number(py::handle known_or_node) {
  if (!py::isinstance<Node>(known_or_node)) return literal_of(known_or_node, graph_);
  return known_or_node.cast<const Node&>().value;
}

Node Lowering::reckon(const std::string& operation, py::handle left, py::handle right) {
  static constexpr std::pair<std::string_view, std::string_view> kSame[] = {
      {"add", "Add"}, {"sub", "Sub"}, {"mul", "Mul"}, {"mod", "Mod"}, {"max", "Max"}, {"min", "Min"}};
  Value a = number(left);
  Value b = number(right);
  const bool whole = graph_.port(a).dtype == DType::i64 && graph_.port(b).dtype == DType::i64;
  if (operation == "floordiv" && whole) {  // ONNX's Div cuts off: made exact first
    return {add("Div", {add("Sub", {a, add("Mod", {a, b})}), b}), true};
  }
  if (!whole || operation == "truediv") {
    a = add("Cast", {a}, {{"to", std::string("f64")}});
    b = add("Cast", {b}, {{"to", std::string("f64")}});
    if (operation == "truediv") return {add("Div", {a, b}), true};
  }
  const auto* const found =
      std::ranges::find(kSame, operation, &std::pair<std::string_view, std::string_view>::first);
  if (found == std::end(kSame) || (!whole && operation == "mod"))
    throw Error(ErrorCode::unsupported, "sizes cannot be reckoned with by '" + operation + "' here");
  return {add(found->second, {a, b}), true};
}

void Lowering::output(const Node& node, const std::string& name, ResultOrder order) {
  // A node of its own: an input may be an output too.
  graph_.output(order.is_the_model_s ? add("Transpose", {node.value}, {{"perm", order.axes}})
                                     : add("Identity", {node.value}),
                name);
  orders_.push_back(std::move(order));
}

}  // namespace heddle::torch_backend
