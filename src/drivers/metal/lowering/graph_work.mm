#include "drivers/metal/lowering/graph_work.h"

#include <algorithm>

#include "drivers/metal/failure.h"
#include "ir/op.h"

namespace heddle::metal {
namespace {

bool is_narrow(ir::DType dtype) { return dtype == ir::DType::kF16 || dtype == ir::DType::kBF16; }

bool has_elements(const ir::Graph& graph, ir::ValueId which) {
  return which != ir::kNoValue && graph.type(which).extents()->elements() > 0;
}

Status check_types(const ir::Graph& graph, const ir::Node& node) {
  for (const auto* ids : {&node.inputs, &node.outputs}) {
    for (const ir::ValueId which : *ids) {
      if (which == ir::kNoValue || has_type(graph.type(which).dtype)) continue;
      return Status::unsupported(node.describe(), ": '", graph.values[which].name, "' is ", graph.type(which),
                                 "; Metal has no ", graph.type(which).dtype);
    }
  }
  return {};
}

// Which of a node's operands are there while it runs, and whether any has elements.
struct Operands {
  bool any_empty = false;
  bool any_full = false;
};
Operands operands_of(const ir::Graph& graph, const ir::Node& node) {
  Operands out;
  for (const ir::ValueId which : node.inputs) {
    if (which == ir::kNoValue || graph.values[which].is_constant()) continue;
    (has_elements(graph, which) ? out.any_full : out.any_empty) = true;
  }
  return out;
}

bool has_narrow(const ir::Graph& graph, const ir::Node& node) {
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ir::ValueId which) {
    return which != ir::kNoValue && is_narrow(graph.type(which).dtype);
  });
}

}  // namespace

Result<Choice> choose(const ir::Graph& graph, const ir::Node& node) {
  const PathEntry* path = find_path(node.op->name);
  if (path == nullptr) return Status::unsupported(node.describe(), ": the Metal driver has no path for it");
  if (path->lower == nullptr) return Status::unsupported(node.describe(), ": ", path->reason);
  const bool wanted = std::any_of(node.outputs.begin(), node.outputs.end(),
                                  [&](ir::ValueId which) { return has_elements(graph, which); });
  if (!wanted) return Choice{path, Fate::left_out};
  const Operands operands = operands_of(graph, node);
  if (operands.any_empty && !operands.any_full) return Choice{path, Fate::known};
  if (operands.any_empty && (path->properties & kTakesEmpty) == 0)
    return Status::unsupported(node.describe(), ": an operand is empty, which MPSGraph does not have");
  return Choice{path, Fate::emitted};
}

Status refusal_of(NSException* exception) {
  const std::string reason = utf8([exception reason]);
  if ([[exception name] isEqualToString:kTooLarge]) return Status::unsupported(reason);
  return Status::internal("MPSGraph refused the graph: ", reason);
}

std::string described(const ir::Graph& graph, const ir::Node& node, const Choice& choice, bool half) {
  if (choice.fate == Fate::left_out) return "left out: nothing it makes has elements";
  if (choice.fate == Fate::known) return "known while compiling: its operands are empty";
  const PathEntry& path = *choice.path;
  std::string told =
      path.path == Path::graph ? "one operator of MPSGraph" : "composed of operators of MPSGraph";
  if (!path.reason.empty()) told += text(": ", path.reason);
  if ((path.properties & kWide) != 0 && has_narrow(graph, node)) told += "; computed in f32";
  if (half && (path.properties & kHalves) != 0) told += "; operands in f16";
  return told;
}

Tensor GraphWork::constant(const ir::Tensor& tensor) {
  const auto [found, fresh] = constants_.try_emplace(tensor.data(), nil);
  // Two constants may share bytes and differ in shape.
  if (!fresh && extents_of(found->second) == at_least_one_axis(tensor.extents()) &&
      dtype_of(found->second) == tensor.dtype())
    return found->second;
  if (const std::optional<size_t> weight = weights_.find(tensor)) {
    found->second = emit_.placeholder(tensor.dtype(), tensor.extents());
    weight_feeds_.push_back({found->second, *weight});
  } else {
    found->second = emit_.constant(tensor);
  }
  return found->second;
}

void GraphWork::make_constants(const ir::Graph& graph) {
  for (const ir::Value& value : graph.values) {
    if (value.is_constant() && value.constant->elements() > 0 && has_type(value.type.dtype))
      constant(*value.constant);
  }
}

Result<std::vector<Tensor>> GraphWork::emit_graph(const ir::Graph& graph, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> values(graph.values.size(), nil);
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs[i]] = inputs[i];
  const auto read = [&](ir::ValueId which) {
    if (which == ir::kNoValue || values[which] != nil || !graph.values[which].is_constant()) return;
    if (has_elements(graph, which) && has_type(graph.type(which).dtype))
      values[which] = constant(*graph.values[which].constant);
  };
  for (const ir::Node& node : graph.nodes) {
    HEDDLE_TRY(check_types(graph, node));
    for (const ir::ValueId which : node.inputs) read(which);
    if (Status status = emit_node(graph, node, values); !status.ok())
      return status.code() == Code::internal ? status.with_context(node.describe()) : status;
  }
  std::vector<Tensor> outputs;
  for (const ir::ValueId which : graph.outputs) {
    read(which);
    outputs.push_back(values[which]);
  }
  return outputs;
}

Status GraphWork::emit_node(const ir::Graph& graph, const ir::Node& node, std::vector<Tensor>& values) {
  HEDDLE_TRY_ASSIGN(const Choice choice, choose(graph, node));
  if (choice.fate == Fate::left_out) return {};
  if (choice.fate == Fate::known) return evaluate_node(graph, node, values);
  Lowering lowering{graph, node, emit_, *this, options_.defences, {}, {}, {}};
  for (const ir::ValueId which : node.inputs)
    lowering.inputs.push_back(which == ir::kNoValue ? nil : values[which]);
  lowering.outputs.resize(node.outputs.size(), nil);
  @try {
    if (Status status = emit_by_path(*choice.path, lowering); !status.ok())
      return status.with_context(node.describe());
    return settle(lowering, values);
  } @catch (NSException* exception) {
    return refusal_of(exception).with_context(node.describe());
  }
}

// Narrow floats become f32 before a wide path, and what comes out becomes narrow again in settle().
Status GraphWork::emit_by_path(const PathEntry& path, Lowering& lowering) {
  const bool halves = options_.half && (path.properties & kHalves) != 0;
  for (Tensor& input : lowering.inputs) {
    if (input == nil) continue;
    if ((path.properties & kWide) != 0 && is_narrow(dtype_of(input)))
      input = emit_.cast(input, ir::DType::kF32);
    if (halves && dtype_of(input) == ir::DType::kF32) input = emit_.cast(input, ir::DType::kF16);
  }
  return path.lower(lowering);
}

// Whatever the operands hold, they hold nothing: the result is known now.
Status GraphWork::evaluate_node(const ir::Graph& graph, const ir::Node& node, std::vector<Tensor>& values) {
  std::vector<ir::Tensor> tensors(node.inputs.size());
  std::vector<const ir::Tensor*> in;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    in.push_back(nullptr);
    if (!node.has_input(i)) continue;
    const ir::Value& value = graph.values[node.inputs[i]];
    tensors[i] =
        value.is_constant() ? *value.constant : ir::Tensor::zeros(value.type.dtype, *value.type.extents());
    in[i] = &tensors[i];
  }
  HEDDLE_TRY_ASSIGN(const std::vector<ir::Tensor> out, ir::evaluate(node, in));
  for (size_t i = 0; i < out.size(); ++i) {
    if (has_elements(graph, node.outputs[i])) values[node.outputs[i]] = emit_.constant(out[i]);
  }
  return {};
}

Status GraphWork::settle(Lowering& lowering, std::vector<Tensor>& values) {
  const ir::Node& node = lowering.node;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ir::ValueId which = node.outputs[i];
    if (!has_elements(lowering.graph, which)) continue;
    Tensor out = lowering.outputs[i];
    const ir::Extents wanted = at_least_one_axis(lowering.out_extents(i));
    if (out == nil) return Status::internal("its path gives no output ", i);
    if (is_narrow(lowering.out_dtype(i)) || dtype_of(out) == ir::DType::kF16)
      out = emit_.cast(out, lowering.out_dtype(i));
    const ir::Extents made = extents_of(out);
    if (dtype_of(out) != lowering.out_dtype(i) || made.elements() != wanted.elements()) {
      return Status::internal("its path gives output ", i, " as ", dtype_of(out), made, "; it is ",
                              lowering.out_dtype(i), wanted);
    }
    values[which] = emit_.reshape(out, wanted);
  }
  for (const Mistake& mistake : lowering.mistakes) add_flags(lowering, mistake);
  return {};
}

void GraphWork::add_flags(const Lowering& lowering, const Mistake& mistake) {
  const ir::Extents extents = extents_of(mistake.wrong);
  const std::optional<size_t> rows = lowering.value(mistake.input).row_axis;
  const bool per_row = rows.has_value() && *rows < extents.rank();
  Axes others;
  for (size_t axis = 0; axis < extents.rank(); ++axis) {
    if (!per_row || axis != *rows) others.push_back(static_cast<int64_t>(axis));
  }
  const int64_t count = per_row ? extents[*rows] : 1;
  Tensor wrong = emit_.greatest(emit_.cast(mistake.wrong, ir::DType::kI32), others);
  flags_.push_back(
      {text(lowering.node.describe(), ": ", mistake.text), emit_.reshape(wrong, {count}), count, per_row});
}

}  // namespace heddle::metal
