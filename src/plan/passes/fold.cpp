#include <algorithm>

#include "plan/passes/foldable.h"
#include "plan/passes/passes.h"
#include "plan/passes/rewrite.h"

namespace heddle::plan {

using ir::Node;
using ir::Tensor;
using ir::ValueId;

namespace {

// The references are slow on purpose; what is above this stays for the driver. A chain of weight preparation
// fits, a matrix product of two weights does not.
constexpr int64_t kMaxWork = int64_t{1} << 24;

}  // namespace

std::optional<std::vector<Tensor>> known_from_shapes(std::span<const ir::Value* const> outputs) {
  std::vector<Tensor> known;
  for (const ir::Value* value : outputs) {
    const auto extents = value->type.extents();
    if (!value->contents || !extents || ir::is_float(value->type.dtype)) return std::nullopt;
    std::vector<int64_t> numbers;
    for (const ir::Dim& d : *value->contents) {
      if (!d.is_static()) return std::nullopt;
      numbers.push_back(d.value());
    }
    if (static_cast<int64_t>(numbers.size()) != extents->elements()) return std::nullopt;
    known.push_back(integer_tensor(value->type.dtype, *extents, numbers));
  }
  return known.empty() ? std::nullopt : std::optional(std::move(known));
}

int64_t reference_work(const Node& node, std::span<const ir::Value* const> in,
                       std::span<const ir::Value* const> out) {
  // These read what they give, not all they are given.
  const bool sparse = node.is("Gather") || node.is("Slice") || node.is("Split") || node.is("Shape");
  if (node.is("If") || node.is("Loop")) return INT64_MAX;  // inlined, their nodes are counted
  int64_t elements = 0;
  for (const auto& values : {out, sparse ? out.first(0) : in}) {
    for (const ir::Value* v : values) {
      if (v == nullptr) continue;
      const auto extents = v->type.extents();
      if (!extents) return INT64_MAX;
      elements += extents->elements();
    }
  }
  // Terms summed up for one element of the output.
  int64_t terms = 1;
  const auto any_of = [&](std::initializer_list<std::string_view> ops) {
    return std::any_of(ops.begin(), ops.end(), [&](std::string_view op) { return node.is(op); });
  };
  if (any_of({"MatMul", "Gemm", "Linear", "MatMulInteger", "GroupedMatMul"})) {
    const ir::Shape& x = in[0]->type.shape;
    if (!x.empty()) terms = (node.attributes.i64("transA") != 0 ? x.front() : x.back()).value();
  } else if (any_of({"Conv", "ConvTranspose", "ConvInteger", "Attention", "RNN", "GRU", "LSTM"})) {
    const ir::Extents weights = *in[in.size() > 1 && in[1] != nullptr ? 1 : 0]->type.extents();
    terms = weights.elements();
  }
  const int64_t outputs = out[0]->type.extents()->elements();
  if (outputs == 0 || terms <= 1) return elements;
  return terms > INT64_MAX / outputs ? INT64_MAX : std::max(elements, outputs * terms);
}

Result<ir::Graph> fold(ir::Graph graph, int64_t& work_left) {
  Rewriter rewriter(std::move(graph));
  return rewriter.run([&work_left](Rewriter& rw, const Node& node) -> Status {
    HEDDLE_TRY(rw.infer_again(node));
    std::vector<const ir::Value*> in;
    std::vector<const Tensor*> tensors;
    bool constant = true;
    for (ValueId id : node.inputs) {
      const ir::Value* value = id == ir::kNoValue ? nullptr : &rw.value(id);
      constant = constant && (value == nullptr || value->is_constant());
      in.push_back(value);
      tensors.push_back(value == nullptr || !value->is_constant() ? nullptr : &*value->constant);
    }
    std::vector<const ir::Value*> out;
    for (ValueId id : node.outputs) out.push_back(&rw.value(id));
    if (auto known = known_from_shapes(out)) {
      rw.become_constants(node, std::move(*known));
      return {};
    }
    if (!constant) return {};
    const int64_t work = reference_work(node, in, out);
    if (work > std::min(kMaxWork, work_left)) return {};
    work_left -= work;
    HEDDLE_TRY_ASSIGN(auto folded, ir::evaluate(node, tensors));
    rw.become_constants(node, std::move(folded));
    return {};
  });
}

}  // namespace heddle::plan
