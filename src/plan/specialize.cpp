#include "plan/specialize.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ir/op.h"
#include "plan/control.h"
#include "plan/passes/foldable.h"
#include "plan/passes/passes.h"

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

// One walk: `values_` are those of the symbolic graph, replaced by what concrete shapes make of them. An If
// or a Loop that these decide is walked in place: its values and nodes join the others.
class Specializer {
 public:
  Specializer(const ir::Graph& graph, uint64_t bytes_max)
      : from_(graph), bytes_max_(bytes_max), values_(graph.values) {
    follow_new_values();
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
  void follow_new_values() {
    outputs_.resize(values_.size(), 0);
    for (size_t i = aliases_.size(); i < values_.size(); ++i) aliases_.push_back(static_cast<ValueId>(i));
  }

  Status step(const Node& node) {
    if (node.is("If")) return step_if(node);
    if (node.is("Loop")) return step_loop(node);
    return step_plain(node);
  }

  Status steps(const std::vector<Node>& nodes) {
    follow_new_values();
    for (const Node& node : nodes) HEDDLE_TRY(step(node));
    return {};
  }

  Ids present(const Node& node) const {
    Ids inputs = node.inputs;
    for (ValueId& id : inputs) id = aliases_[id];
    return inputs;
  }

  std::vector<const ir::Value*> operands(const Ids& inputs) const {
    std::vector<const ir::Value*> in;
    for (ValueId id : inputs) in.push_back(&values_[id]);
    return in;
  }

  // A nested graph for such operands. The first `own` stay its inputs; of the others, constants move inside.
  Result<std::shared_ptr<const ir::Graph>> nested(const ir::Graph& body, const Ids& inputs, size_t own) {
    std::vector<const Tensor*> known;
    std::vector<ir::Extents> extents;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ir::Value& value = values_[inputs[i]];
      known.push_back(i >= own && value.is_constant() ? &*value.constant : nullptr);
      if (known.back() == nullptr) extents.push_back(*value.type.extents());
    }
    const ir::Graph bound = with_constants(body, known);
    HEDDLE_TRY_ASSIGN(ir::Graph special, Specializer(bound, bytes_max_).run(extents));
    return std::make_shared<const ir::Graph>(std::move(special));
  }

  // The operands that such a nested graph still has.
  Ids left_outside(const Ids& inputs, size_t own) const {
    Ids left;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (i < own || !values_[inputs[i]].is_constant()) left.push_back(inputs[i]);
    }
    return left;
  }

  Status step_if(const Node& node) {
    const Ids inputs = present(node);
    const Ids captured(inputs.begin() + 1, inputs.end());
    if (const auto condition = ir::known_number(values_[inputs[0]])) {
      const ir::Branch branch = ir::branch_of(node, *condition != 0);
      if (branch.graph == nullptr) return ir::refused(branch, *condition != 0).with_context(node.describe());
      return steps(Inliner(values_).graph(*branch.graph, captured, node.outputs, ""));
    }
    std::shared_ptr<const ir::Graph> branches[2];
    for (const bool taken : {false, true}) {
      const ir::Branch branch = ir::branch_of(node, taken);
      if (branch.graph == nullptr) return ir::refused(branch, taken).with_context(node.describe());
      auto special = nested(*branch.graph, captured, 0);
      const char* name = taken ? "then_branch" : "else_branch";
      if (!special.ok()) return special.status().with_context(text(node.describe(), ": ", name));
      branches[taken] = std::move(*special);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ir::TensorType& yes = branches[1]->type(branches[1]->outputs[i]);
      const ir::TensorType& no = branches[0]->type(branches[0]->outputs[i]);
      if (!(yes == no)) {
        return Status::unsupported(node.describe(), ": output ", i, " is ", yes, " by its then branch and ",
                                   no, " by its else branch; the condition depends on data, so they have to ",
                                   "be the same");
      }
      HEDDLE_TRY(check_size(node, i, yes));
      become(node.outputs[i], {{}, yes, {}, {}});
    }
    Ids left = left_outside(captured, 0);
    left.insert(left.begin(), inputs[0]);
    nodes_.push_back({node.op,
                      node.name,
                      std::move(left),
                      node.outputs,
                      {{"then_branch", std::move(branches[1])}, {"else_branch", std::move(branches[0])}}});
    return {};
  }

  Status step_loop(const Node& node) {
    const Ids inputs = present(node);
    const auto count = ir::known_number(values_[inputs[0]]);
    const auto condition = ir::known_number(values_[inputs[1]]);
    if (!count || !condition) {
      return Status::unsupported(node.describe(), ": its ", count ? "condition" : "trip count",
                                 " depends on data; it must follow from the shapes of the inputs");
    }
    const int64_t trips = *condition == 0 ? 0 : std::max<int64_t>(*count, 0);
    if (trips == 0) return no_iteration(node, inputs);
    return trips > ir::kMaxUnrolled ? keep_loop(node, inputs, trips) : unroll(node, inputs, trips);
  }

  Status unroll(const Node& node, const Ids& inputs, int64_t trips) {
    const ir::LoopForm form = ir::loop_form(node);
    const auto rest = inputs.begin() + 2 + static_cast<std::ptrdiff_t>(form.carried);
    Ids carried(inputs.begin() + 2, rest);
    std::vector<Ids> stacked;
    bool goes_on = true;
    for (int64_t i = 0; i < trips && goes_on; ++i) {
      if (nodes_.size() + form.body->nodes.size() > kMaxNodes) {
        return Status::unsupported(node.describe(), ": unrolled, the graph has more than ", kMaxNodes,
                                   " nodes");
      }
      Inliner::Iteration iteration = Inliner(values_).iteration(node, i, carried, Ids(rest, inputs.end()));
      HEDDLE_TRY(steps(iteration.nodes));
      stacked.push_back(std::move(iteration.stacked));
      if (i + 1 == trips) break;  // whatever the condition
      const auto condition = ir::known_number(values_[aliases_[iteration.condition]]);
      if (!condition) {
        return Status::unsupported(node.describe(), ": whether iteration ", i + 1,
                                   " runs depends on data; it must follow from the shapes of the inputs");
      }
      goes_on = *condition != 0;
    }
    return steps(Inliner(values_).results(node, carried, stacked));
  }

  Result<ir::Iteration> any_iteration(const Node& node, const Ids& inputs) const {
    Result<ir::Iteration> any = ir::any_iteration(node, operands(inputs));
    if (!any.ok()) return any.status().with_context(node.describe());
    return any;
  }

  Status no_iteration(const Node& node, const Ids& inputs) {
    const ir::LoopForm form = ir::loop_form(node);
    HEDDLE_TRY_ASSIGN(const ir::Iteration any, any_iteration(node, inputs));
    for (size_t k = 0; k < form.scans; ++k) {
      ir::TensorType type = any.outputs[1 + form.carried + k].type;
      type.shape.insert(type.shape.begin(), 0);
      const auto extents = type.extents();
      if (!extents) {
        return Status::unsupported(node.describe(), ": it has no iteration, and the shape ", type,
                                   " of its output ", form.carried + k, " is not known");
      }
      become(node.outputs[form.carried + k], {{}, type, {}, {}});
      values_[node.outputs[form.carried + k]].constant = Tensor::zeros(type.dtype, *extents);
    }
    Node carried_only = node;
    carried_only.outputs.resize(form.carried);
    const Ids carried(inputs.begin() + 2, inputs.begin() + 2 + static_cast<std::ptrdiff_t>(form.carried));
    return steps(Inliner(values_).results(carried_only, carried, {}));
  }

  // The body stays a graph of its own, run `trips` times.
  Status keep_loop(const Node& node, const Ids& inputs, int64_t trips) {
    const ir::LoopForm form = ir::loop_form(node);
    HEDDLE_TRY_ASSIGN(const ir::Iteration any, any_iteration(node, inputs));
    if (!any.goes_on || !any.steady) {
      return Status::unsupported(
          node.describe(), ": of ", trips, " iterations ",
          any.steady ? "some may end the loop" : "some change the shape of a carried value",
          "; a loop of more than ", ir::kMaxUnrolled, " is run to its end with fixed shapes");
    }
    const size_t own = 2 + form.carried;
    auto body = nested(*form.body, inputs, own);
    if (!body.ok()) return body.status().with_context(text(node.describe(), ": body"));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      ir::TensorType type = (*body)->type((*body)->outputs[1 + i]);
      if (i >= form.carried) type.shape.insert(type.shape.begin(), trips);
      HEDDLE_TRY(check_size(node, i, type));
      become(node.outputs[i], {{}, std::move(type), {}, {}});
    }
    nodes_.push_back({node.op,
                      node.name,
                      left_outside(inputs, own),
                      node.outputs,
                      {{"body", std::move(*body)}, {"carried", static_cast<int64_t>(form.carried)}}});
    return {};
  }

  void become(ValueId id, ir::Value made) {
    values_[id].type = std::move(made.type);
    values_[id].contents = std::move(made.contents);
  }

  Status check_size(const Node& node, size_t output, const ir::TensorType& type) const {
    const auto elements = ir::checked_elements(type.extents()->span(), type.dtype);
    if (!elements.ok()) return elements.status().with_context(text(node.describe(), ": output ", output));
    const auto bytes = static_cast<uint64_t>(*elements * ir::size_of(type.dtype));
    if (bytes <= bytes_max_) return {};
    return Status::exhausted(node.describe(), ": output ", output, ", ", type, ", takes ", bytes,
                             " bytes; the memory limit is ", bytes_max_);
  }

  Status step_plain(const Node& node) {
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
      HEDDLE_TRY(check_size(node, i, made[i].type));
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
      become(node.outputs[i], std::move(made[i]));
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
  const uint64_t bytes_max_;
  std::vector<ir::Value> values_;
  std::vector<Node> nodes_;
  std::vector<ValueId> aliases_;
  std::vector<char> outputs_;
};

}  // namespace

Result<ir::Graph> specialize(const ir::Graph& graph, std::span<const ir::Extents> inputs,
                             uint64_t bytes_max) {
  HEDDLE_TRY(bind(graph, inputs));
  return Specializer(graph, bytes_max).run(inputs);
}

}  // namespace heddle::plan
