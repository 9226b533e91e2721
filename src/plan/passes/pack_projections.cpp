#include <array>
#include <cstring>
#include <utility>

#include "plan/passes/passes.h"
#include "plan/passes/rewrite.h"

namespace heddle::plan {

using ir::kNoValue;
using ir::Node;
using ir::Tensor;
using ir::ValueId;

namespace {

// Rows of `parts`, side by side. All have the same number of rows.
Tensor side_by_side(const std::array<const Tensor*, 3>& parts, int64_t rows) {
  int64_t columns = 0;
  for (const Tensor* part : parts) columns += part->elements() / rows;
  Tensor out = Tensor::zeros(parts[0]->dtype(), {rows, columns});
  auto* to = static_cast<std::byte*>(out.mutable_data());
  for (int64_t row = 0; row < rows; ++row) {
    for (const Tensor* part : parts) {
      const auto bytes = static_cast<size_t>(part->bytes() / rows);
      std::memcpy(to, part->as<std::byte>() + static_cast<size_t>(row) * bytes, bytes);
      to += bytes;
    }
  }
  return out;
}

bool projects(const Rewriter& rw, const Node& linear, const Node& first) {
  const bool plain = !linear.has_input(3) && linear.attributes.str("activation").empty();
  if (!plain || linear.inputs[0] != first.inputs[0]) return false;
  if (linear.attributes.i64("trans_w") != first.attributes.i64("trans_w")) return false;
  if (!rw.value(linear.inputs[1]).is_constant()) return false;
  if (!(rw.value(linear.inputs[1]).type == rw.value(first.inputs[1]).type)) return false;
  return !linear.has_input(2) || rw.value(linear.inputs[2]).is_constant();
}

Status pack(Rewriter& rw, const Node& attention) {
  if (attention.attributes.i64("packed") != 0 || attention.inputs.size() < 3) return {};
  std::array<const Node*, 3> linears{};
  for (size_t i = 0; i < 3; ++i) {
    linears[i] = rw.maker(attention.inputs[i], "Linear");
    if (linears[i] == nullptr || !projects(rw, *linears[i], *linears[0])) return {};
  }
  if (!rw.closed({linears.begin(), linears.end()}, attention) || linears[0] == linears[1] ||
      linears[1] == linears[2]) {
    return {};
  }
  const int64_t heads = attention.attributes.i64("num_heads");
  if (attention.attributes.i64("kv_heads", heads) != heads) return {};

  const bool transposed = linears[0]->attributes.i64("trans_w") != 0;
  const Tensor& first = *rw.value(linears[0]->inputs[1]).constant;
  const int64_t width = first.extents()[transposed ? 0 : 1];
  const int64_t depth = first.extents()[transposed ? 1 : 0];
  std::array<const Tensor*, 3> weights{};
  std::array<Tensor, 3> biases;
  bool any_bias = false;
  for (size_t i = 0; i < 3; ++i) {
    weights[i] = &*rw.value(linears[i]->inputs[1]).constant;
    biases[i] = Tensor::zeros(first.dtype(), {width});
    if (!linears[i]->has_input(2)) continue;
    biases[i] = *rw.value(linears[i]->inputs[2]).constant;
    any_bias = true;
  }
  const std::string name = attention.name + "/qkv";
  Tensor weight = side_by_side(weights, transposed ? 1 : depth);
  if (transposed) weight = weight.reshaped({3 * width, depth});
  std::vector<ValueId> inputs{linears[0]->inputs[0], rw.constant(std::move(weight), name + "/weight")};
  if (any_bias) {
    Tensor bias = side_by_side({&biases[0], &biases[1], &biases[2]}, 1).reshaped({3 * width});
    inputs.push_back(rw.constant(std::move(bias), name + "/bias"));
  }
  HEDDLE_TRY_ASSIGN(const ValueId qkv, rw.emit("Linear", std::move(inputs), linears[0]->attributes, name));
  std::vector<ValueId> operands{qkv};
  if (attention.has_input(3)) operands.insert(operands.end(), {kNoValue, kNoValue, attention.inputs[3]});
  ir::Attributes attributes = attention.attributes;
  attributes.set("packed", int64_t{1});
  return rw.replace(attention, "Attention", std::move(operands), std::move(attributes));
}

}  // namespace

Result<ir::Graph> pack_projections(ir::Graph graph) {
  Rewriter rewriter(std::move(graph));
  return rewriter.run([](Rewriter& rw, const Node& node) -> Status {
    return node.is("Attention") ? pack(rw, node) : Status();
  });
}

}  // namespace heddle::plan
