#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string_view>

#include "expected_fixture.h"
#include "tests/close_fixture.h"

namespace heddle::differential {
namespace {

using ir::DType;
using ir::Tensor;

constexpr int64_t kElementsMost = 1 << 14;
constexpr double kValueMost = 1e4;     // f16 ends at 65504
constexpr double kSpreadMost = 0.02;   // of a value's scale: beyond that a comparison shows nothing
constexpr double kSpreadTimes = 10.0;  // that a right answer may be away

// Some units in the last place: sums of another order, functions of another library.
double step_of(DType dtype, Rounding rounding) {
  switch (dtype) {
    case DType::kF64:
      return std::ldexp(1.0, -47);
    case DType::kF16:
      return std::ldexp(1.0, -10);
    case DType::kBF16:
      return std::ldexp(1.0, -7);
    default:
      return rounding == Rounding::kBf16 ? std::ldexp(1.0, -8) : std::ldexp(1.0, -20);
  }
}

// Results whose bits follow from the operands' bits.
const std::set<std::string_view>& exact_ops() {
  static const std::set<std::string_view> names = {"Identity",
                                                   "Neg",
                                                   "Abs",
                                                   "Relu",
                                                   "Min",
                                                   "Max",
                                                   "Where",
                                                   "Clip",
                                                   "Transpose",
                                                   "Reshape",
                                                   "Squeeze",
                                                   "Unsqueeze",
                                                   "Flatten",
                                                   "Expand",
                                                   "Concat",
                                                   "Split",
                                                   "Slice",
                                                   "Gather",
                                                   "Pad",
                                                   "GatherND",
                                                   "Tile",
                                                   "Trilu",
                                                   "ReduceMax",
                                                   "ReduceMin",
                                                   "MaxPool",
                                                   "Floor",
                                                   "Ceil",
                                                   "Round",
                                                   "Sign",
                                                   "GatherElements",
                                                   "TopK",
                                                   "OneHot",
                                                   "BitCast",
                                                   "MaxUnpool",
                                                   "Cast",
                                                   "GlobalMaxPool",
                                                   "ScatterND",
                                                   "ScatterElements",
                                                   "ConstantOfShape"};
  return names;
}

// Results that jump where an operand passes a threshold.
const std::set<std::string_view>& jumping_ops() {
  static const std::set<std::string_view> names = {
      "Floor", "Ceil", "Round", "Sign", "Mod", "If", "GridSample", "RoiAlign", "Loop", "OneHot", "BitCast"};
  return names;
}

// Does its body round, and then choose by what it has computed?
bool chooses_by_rounding(const ir::Node& node) {
  bool rounds = false, chooses = false;
  const auto look_into = [&](const auto& self, const ir::Node& of) -> void {
    for (const auto& [name, attribute] : of.attributes) {
      const auto* const body = std::get_if<std::shared_ptr<const ir::Graph>>(&attribute);
      if (body == nullptr) continue;
      for (const ir::Node& inner : (*body)->nodes) {
        rounds = rounds || !exact_ops().contains(inner.op->name);
        chooses = chooses || jumping_ops().contains(inner.op->name);
        self(self, inner);
      }
    }
  };
  look_into(look_into, node);
  return rounds && chooses;
}

bool finite(const Tensor& tensor) {
  if (!ir::is_float(tensor.dtype())) return true;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    if (!(std::fabs(tensor.get(i)) <= kValueMost)) return false;
  }
  return true;
}

double scale_of(const Tensor& tensor) {
  double most = 0;
  for (int64_t i = 0; i < tensor.elements(); ++i) most = std::max(most, std::fabs(tensor.get(i)));
  return most;
}

// Each element a step up or down.
Tensor stepped(const Tensor& tensor, Rounding rounding, std::mt19937& random) {
  if (!ir::is_float(tensor.dtype())) return tensor;
  const double step = step_of(tensor.dtype(), rounding);
  Tensor out = Tensor::zeros(tensor.dtype(), tensor.extents());
  for (int64_t i = 0; i < tensor.elements(); ++i)
    out.set(i, tensor.get(i) * ((random() & 1) != 0 ? 1 + step : 1 - step));
  return out;
}

// Each element a step further from the right one, so that one rounding does not undo another.
Tensor pushed(const Tensor& tensor, const Tensor& right, Rounding rounding, std::mt19937& random) {
  if (!ir::is_float(tensor.dtype())) return tensor;
  const double step = step_of(tensor.dtype(), rounding);
  Tensor out = Tensor::zeros(tensor.dtype(), tensor.extents());
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double is = tensor.get(i), wanted = right.get(i);
    const bool up = is == wanted ? (random() & 1) != 0 : is > wanted;
    out.set(i, up ? is + std::fabs(is) * step : is - std::fabs(is) * step);
  }
  return out;
}

// C leaves it open what a float beyond an integer type's range becomes; a divisor of 0 likewise.
bool is_defined(const ir::Node& node, std::span<const Tensor* const> in) {
  if (node.is("Div") || node.is("Mod")) {
    if (ir::is_float(in[1]->dtype())) return true;
    for (int64_t i = 0; i < in[1]->elements(); ++i) {
      if (in[1]->get_i64(i) == 0 || in[1]->get_i64(i) == -1) return false;
    }
  }
  if (node.is("Cast") && ir::is_float(in[0]->dtype())) {
    const std::string to = node.attributes.str("to");
    if (to.starts_with('f') || to.starts_with('b')) return true;
    for (int64_t i = 0; i < in[0]->elements(); ++i) {
      const double x = in[0]->get(i);
      if (std::fabs(x) > 100 || (x <= -1 && to.starts_with('u'))) return false;
    }
  }
  return true;
}

}  // namespace

double Known::spread() const {
  if (!ir::is_float(right.dtype())) return 0;
  double most = 0;
  for (const Tensor& other : moved) {
    for (int64_t i = 0; i < right.elements(); ++i)
      most = std::max(most, std::fabs(other.get(i) - right.get(i)));
  }
  return most;
}

Result<std::vector<Tensor>> Expected::moved(const ir::Node& node, size_t which, bool steady,
                                            std::span<const Tensor> right) const {
  const bool exact = exact_ops().contains(node.op->name);
  std::mt19937 random(static_cast<uint32_t>(which * 7919 + node.outputs.front()));
  std::vector<Tensor> operands(node.inputs.size());
  std::vector<const Tensor*> in;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    in.push_back(nullptr);
    if (!node.has_input(i)) continue;
    const Tensor& operand = known_.at(node.inputs[i]).moved[which];
    operands[i] = exact ? operand : stepped(operand, rounding_, random);
    in.back() = &operands[i];
  }
  HEDDLE_TRY_ASSIGN(std::vector<Tensor> out, ir::evaluate(node, in));
  const bool rounds = !exact || (node.is("Cast") && !steady);
  for (size_t i = 0; rounds && i < out.size(); ++i) out[i] = pushed(out[i], right[i], rounding_, random);
  return out;
}

// A chain cancels, and jumps, by what its own nodes round.
Result<std::vector<Known>> Expected::chain(const ir::Node& node) const {
  std::vector<Known> operands;
  for (const ir::ValueId id : node.inputs) operands.push_back(known_.at(id));
  return through(*node.attributes.graph("body"), operands, rounding_);
}

Result<std::vector<Known>> Expected::compute(const ir::Node& node) const {
  if (node.is("Elementwise")) return chain(node);
  std::vector<const Tensor*> in;
  bool steady = true, floats = false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    in.push_back(node.has_input(i) ? &known_.at(node.inputs[i]).right : nullptr);
    if (in.back() == nullptr) continue;
    steady = steady && known_.at(node.inputs[i]).steady;
    floats = floats || ir::is_float(in.back()->dtype());
  }
  if (!is_defined(node, in)) return Status::unsupported("its results are not defined for these operands");
  if (rounding_ == Rounding::kBf16 && chooses_by_rounding(node))
    return Status::unsupported("what its body chooses depends on rounding");
  HEDDLE_TRY_ASSIGN(const std::vector<Tensor> right, ir::evaluate(node, in));
  bool jumps = jumping_ops().contains(node.op->name);
  for (const Tensor& out : right) {
    if (out.elements() > kElementsMost) return Status::unsupported("its results are too large");
    if (!finite(out)) return Status::unsupported("its results are not finite");
    jumps = jumps || (floats && !ir::is_float(out.dtype()));
  }
  if (jumps && !steady) return Status::unsupported("what its results are depends on rounding");
  std::vector<Known> all;
  for (const Tensor& out : right) all.push_back(Known::exactly(out));
  if (!floats || (steady && exact_ops().contains(node.op->name))) return all;
  for (size_t which = 0; which < kMoved; ++which) {
    std::mt19937 random(static_cast<uint32_t>(which * 104729 + node.outputs.front()));
    std::vector<Tensor> moved = right;
    if (!jumps) {
      HEDDLE_TRY_ASSIGN(moved, this->moved(node, which, steady, right));
    }
    for (size_t i = 0; i < all.size(); ++i)
      all[i].moved[which] = jumps ? stepped(right[i], rounding_, random) : moved[i];
  }
  for (Known& known : all) {
    if (!ir::is_float(known.right.dtype())) continue;
    known.steady = false;
    if (!(known.spread() <= kSpreadMost * std::max(scale_of(known.right), 1e-3)))
      return Status::unsupported("its results depend on rounding");
  }
  return all;
}

Result<std::vector<Known>> through(const ir::Graph& graph, std::span<const Known> inputs, Rounding rounding) {
  Expected expected(rounding);
  for (size_t i = 0; i < graph.inputs.size(); ++i) expected.set(graph.inputs[i], inputs[i]);
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (graph.values[i].is_constant())
      expected.set(static_cast<ir::ValueId>(i), Known::exactly(*graph.values[i].constant));
  }
  for (const ir::Node& node : graph.nodes) {
    HEDDLE_TRY_ASSIGN(const std::vector<Known> results, expected.compute(node));
    for (size_t i = 0; i < results.size(); ++i) expected.set(node.outputs[i], results[i]);
  }
  std::vector<Known> outputs;
  for (const ir::ValueId id : graph.outputs) outputs.push_back(expected.of(id));
  return outputs;
}

Result<std::vector<Known>> expect(const ir::Graph& graph, std::span<const Tensor> inputs, Rounding rounding) {
  std::vector<Known> known;
  for (const Tensor& input : inputs) known.push_back(Known::exactly(input));
  return through(graph, known, rounding);
}

std::string difference(const Tensor& got, const Known& wanted, Rounding rounding) {
  const Tensor& right = wanted.right;
  if (!(got.type() == right.type())) return text("the type is ", got.type(), ", not ", right.type());
  const double step = step_of(right.dtype(), rounding);
  const test::Tolerance tolerance{4 * step, kSpreadTimes * wanted.spread() + 1e-30};
  for (int64_t i = 0; i < right.elements(); ++i) {
    if (!ir::is_float(right.dtype())) {
      if (got.get_i64(i) != right.get_i64(i))
        return text("element ", i, " is ", got.get_i64(i), ", not ", right.get_i64(i));
    } else if (wanted.steady ? got.get(i) != right.get(i)
                             : !test::is_close(got.get(i), right.get(i), tolerance)) {
      return text("element ", i, " is ", got.get(i), ", not ", right.get(i), " within ",
                  tolerance.absolute + tolerance.relative * std::fabs(right.get(i)));
    }
  }
  return "";
}

}  // namespace heddle::differential
