#include "plan/specialize.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ir/op.h"
#include "plan/foldable.h"
#include "plan/passes.h"

namespace heddle::plan {

using ir::kNoValue;
using ir::Node;
using ir::Tensor;
using ir::ValueId;

namespace {

// Above this the driver computes a constant at run time: its kernels are faster than the references, and
// executables stay small.
constexpr int64_t kMaxWork = int64_t{1} << 18;
constexpr int64_t kMaxElements = int64_t{1} << 16;

using Symbols = std::map<std::string, int64_t>;

struct Binding {
  std::string where;  // "axis 0 of input 'x'"
  int64_t extent;
};

Status bind(const ir::Graph& graph, std::span<const ir::Extents> inputs) {
  std::map<std::string, Binding> bound;
  Symbols symbols;
  const auto describe = [&](size_t input, size_t axis) {
    return text("axis ", axis, " of input '", graph.values[graph.inputs[input]].name, "'");
  };
  if (inputs.size() != graph.inputs.size()) {
    return Status::invalid("the graph has ", graph.inputs.size(), " inputs; shapes of ", inputs.size(),
                           " were given");
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ir::TensorType& type = graph.type(graph.inputs[i]);
    if (inputs[i].rank() != type.rank()) {
      return Status::invalid("input '", graph.values[graph.inputs[i]].name, "' is ", type, ", of rank ",
                             type.rank(), "; the given shape ", inputs[i], " has rank ", inputs[i].rank());
    }
    for (size_t axis = 0; axis < type.rank(); ++axis) {
      const int64_t extent = inputs[i][axis];
      const ir::Dim& dim = type.shape[axis];
      if (extent < 0) return Status::invalid(describe(i, axis), " is ", extent, "; an extent is 0 or more");
      if (dim.is_static() && dim.value() != extent) {
        return Status::invalid(describe(i, axis), " is ", extent, "; the model takes ", dim, " there");
      }
      if (dim.is_static()) continue;
      const std::string name = to_string(dim);
      if (!(dim == ir::Dim::symbol(name))) continue;
      const auto [found, fresh] = bound.try_emplace(name, Binding{describe(i, axis), extent});
      if (!fresh && found->second.extent != extent) {
        return Status::invalid(describe(i, axis), " is ", extent, ", but '", name, "' is ",
                               found->second.extent, " by ", found->second.where);
      }
      symbols[name] = extent;
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ir::Shape& shape = graph.type(graph.inputs[i]).shape;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const auto wanted = shape[axis].evaluate(symbols);
      if (wanted && *wanted != inputs[i][axis]) {
        return Status::invalid(describe(i, axis), " is ", inputs[i][axis], "; ", shape[axis], " is ", *wanted,
                               " by the other extents");
      }
    }
  }
  return {};
}

// One walk: `values` are those of the symbolic graph, replaced by what concrete shapes make of them.
class Specializer {
 public:
  explicit Specializer(const ir::Graph& graph) : from_(graph), values_(graph.values) {
    aliases_.resize(values_.size());
    for (size_t i = 0; i < aliases_.size(); ++i) aliases_[i] = static_cast<ValueId>(i);
    outputs_.assign(values_.size(), 0);
    for (ValueId id : graph.outputs) outputs_[id] = 1;
  }

  Result<ir::Graph> run(std::span<const ir::Extents> inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      ir::Value& value = values_[from_.inputs[i]];
      value.type.shape = ir::to_shape(inputs[i]);
      value.contents.reset();
    }
    nodes_.reserve(from_.nodes.size());
    for (const Node& node : from_.nodes) HEDDLE_TRY(step(node));
    return drop_dead({from_.name, std::move(values_), std::move(nodes_), from_.inputs, from_.outputs});
  }

 private:
  Status step(const Node& node) {
    std::vector<ValueId> inputs = node.inputs;
    std::vector<const ir::Value*> in;
    in.reserve(inputs.size());
    for (ValueId& id : inputs) {
      if (id != kNoValue) id = aliases_[id];
      in.push_back(id == kNoValue ? nullptr : &values_[id]);
    }
    HEDDLE_TRY_ASSIGN(auto made, ir::infer(node, in));
    std::vector<const ir::Value*> out;
    for (size_t i = 0; i < made.size() && i < node.outputs.size(); ++i) {
      if (!made[i].type.is_static()) {
        return Status::unsupported(node.describe(), ": the shape of output ", i, ", ", made[i].type,
                                   ", depends on data; shapes must follow from the shapes of the inputs");
      }
      out.push_back(&made[i]);
    }
    const auto known = known_from_shapes(out);
    if (known) {
      become_constants(node, *known);
      return {};
    }
    if (constant(in) && small(out) && reference_work(node, in, out) <= kMaxWork) {
      std::vector<const Tensor*> tensors;
      for (const ir::Value* v : in) tensors.push_back(v == nullptr ? nullptr : &*v->constant);
      HEDDLE_TRY_ASSIGN(auto folded, ir::evaluate(node, tensors));
      become_constants(node, folded);
      return {};
    }
    if (unchanged(node, in, made)) {
      aliases_[node.outputs[0]] = inputs[0];
      return {};
    }
    for (size_t i = 0; i < made.size() && i < node.outputs.size(); ++i) {
      ir::Value& value = values_[node.outputs[i]];
      value.type = std::move(made[i].type);
      value.contents = std::move(made[i].contents);
    }
    nodes_.push_back({node.op, node.name, std::move(inputs), node.outputs, node.attributes});
    return {};
  }

  static bool constant(const std::vector<const ir::Value*>& in) {
    return std::all_of(in.begin(), in.end(),
                       [](const ir::Value* v) { return v == nullptr || v->is_constant(); });
  }

  static bool small(const std::vector<const ir::Value*>& out) {
    return std::all_of(out.begin(), out.end(),
                       [](const ir::Value* v) { return v->type.extents()->elements() <= kMaxElements; });
  }

  // Moves nothing at these shapes. A graph output keeps its own value.
  bool unchanged(const Node& node, const std::vector<const ir::Value*>& in,
                 const std::vector<ir::Value>& made) const {
    if (made.size() != 1 || outputs_[node.outputs[0]] != 0) return false;
    if (node.is("Identity")) return true;
    const bool moves = node.is("Expand") || node.is("Reshape") || node.is("Tile");
    return moves && in[0]->type == made[0].type;
  }

  void become_constants(const Node& node, const std::vector<Tensor>& tensors) {
    for (size_t i = 0; i < node.outputs.size() && i < tensors.size(); ++i) {
      ir::Value& value = values_[node.outputs[i]];
      value.type = tensors[i].type();
      value.contents.reset();
      value.constant = tensors[i];
    }
  }

  const ir::Graph& from_;
  std::vector<ir::Value> values_;
  std::vector<Node> nodes_;
  std::vector<ValueId> aliases_;
  std::vector<char> outputs_;
};

}  // namespace

Result<ir::Graph> specialize(const ir::Graph& graph, std::span<const ir::Extents> inputs) {
  HEDDLE_TRY(bind(graph, inputs));
  return Specializer(graph).run(inputs);
}

}  // namespace heddle::plan
