#include "random_graph_fixture.h"

#include <algorithm>
#include <cmath>

namespace heddle::differential {

using ir::DType;
using ir::Extents;
using ir::Tensor;
using ir::ValueId;

namespace {

const char kRows[] = "rows";

// Elements that a float of 16 bits has, too, so that a Cast changes none of them.
double element(Choices& choices, double low, double high) {
  const double x = low + (high - low) * static_cast<double>(choices.below(1 << 12)) / (1 << 12);
  return std::fabs(x) < 1e-3 ? x : static_cast<double>(std::ldexp(std::round(std::ldexp(x, 6)), -6));
}

Tensor random_tensor(Choices& choices, DType dtype, const Extents& extents, double low, double high) {
  // One choice of the bytes for all elements: a fuzzer's input stays short.
  SeededChoices own(choices.word());
  Tensor tensor = Tensor::zeros(dtype, extents);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    if (dtype == DType::kBool) {
      tensor.set_i64(i, own.between(0, 1));
    } else if (ir::is_float(dtype)) {
      tensor.set(i, element(own, low, high));
    } else {
      const double least = ir::is_unsigned(dtype) ? std::max(low, 0.0) : low;
      tensor.set_i64(i,
                     own.between(static_cast<int64_t>(least), static_cast<int64_t>(std::max(least, high))));
    }
  }
  return tensor;
}

}  // namespace

ValueId Sketch::input(DType dtype, const Extents& extents, bool rows) {
  return input(random(dtype, extents), rows);
}

ValueId Sketch::input(Tensor tensor, bool rows) {
  ir::TensorType type = tensor.type();
  if (rows) type.shape[0] = ir::Dim::symbol(kRows);
  const ValueId id = builder_.input(text("in", inputs_.size()), std::move(type));
  expected_.set(id, Known::exactly(tensor));
  values_.push_back(id);
  inputs_.push_back(std::move(tensor));
  return id;
}

ValueId Sketch::constant(Tensor tensor) {
  const ValueId id = builder_.constant(tensor);
  expected_.set(id, Known::exactly(tensor));
  return id;
}

std::vector<ValueId> Sketch::add(std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes,
                                 size_t outputs) {
  ir::Node node;
  node.op = ir::find_op(op);
  node.inputs = inputs;
  node.attributes = attributes;
  const auto next = static_cast<ValueId>(builder_.graph().values.size());
  for (size_t i = 0; i < outputs; ++i) node.outputs.push_back(next + static_cast<ValueId>(i));
  for (const ValueId id : inputs) {
    if (id != ir::kNoValue && id >= next) return {};  // of a step that came to nothing
  }
  const Result<std::vector<Known>> results = expected_.compute(node);
  if (!results.ok()) return {};
  Result<std::vector<ValueId>> made = builder_.nodes(op, inputs, outputs, std::move(attributes));
  if (!made.ok()) return {};
  for (size_t i = 0; i < outputs; ++i) {
    expected_.set((*made)[i], (*results)[i]);
    values_.push_back((*made)[i]);
    ends_.push_back((*made)[i]);
  }
  for (const ValueId id : inputs) std::erase(ends_, id);
  return *made;
}

ValueId Sketch::one(std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes) {
  const std::vector<ValueId> made = add(op, std::move(inputs), std::move(attributes));
  return made.empty() ? ir::kNoValue - 1 : made.front();
}

// Often of the latest, so that chains form.
ValueId Sketch::any() {
  const size_t latest = std::min<size_t>(values_.size(), 4);
  if (!choices_.one_in(3)) return values_[values_.size() - 1 - choices_.below(latest)];
  return choices_.of(values_);
}

ValueId Sketch::any(bool (*fits)(const Tensor&)) {
  std::vector<ValueId> fitting;
  for (const ValueId id : values_) {
    if (fits(at(id))) fitting.push_back(id);
  }
  return fitting.empty() ? ir::kNoValue : choices_.of(fitting);
}

Tensor Sketch::random(DType dtype, const Extents& extents, double low, double high) {
  return random_tensor(choices_, dtype, extents, low, high);
}

RandomGraph Sketch::take() {
  std::vector<ValueId> outputs = ends_;
  if (outputs.empty()) outputs = values_;
  if (choices_.one_in(4)) outputs.push_back(choices_.of(values_));  // also what others read, or twice
  RandomGraph result;
  for (size_t i = 0; i < outputs.size(); ++i) {
    builder_.output(outputs[i], text("out", i));
    result.outputs.push_back(expected_.of(outputs[i]));
  }
  result.graph = *builder_.take();
  result.inputs = std::move(inputs_);
  return result;
}

RandomGraph random_graph(Choices& choices) {
  Sketch sketch(choices);
  sketch.set_rows(choices.between(1, 4));
  constexpr DType kCommon[] = {DType::kF32, DType::kF32, DType::kF32, DType::kF16, DType::kBF16,
                               DType::kF64, DType::kI64, DType::kI32, DType::kU8,  DType::kI8};
  const size_t inputs = 1 + choices.below(2);
  const size_t rank = 2 + choices.below(3);
  const bool rows = !choices.one_in(4);
  for (size_t i = 0; i < inputs; ++i) {
    Extents extents{sketch.rows()};
    for (size_t axis = 1; axis < rank; ++axis) extents.push_back(choices.between(1, 6));
    sketch.input(choices.of(kCommon), extents, rows);
  }
  constexpr Step kSteps[] = {add_pointwise, add_pointwise, add_movement, add_movement,
                             add_reduction, add_product,   add_window,   add_pattern,
                             add_case,      add_case,      add_case};
  const size_t steps = 1 + choices.below(8);
  for (size_t i = 0; i < steps; ++i) choices.of(kSteps)(sketch);
  return sketch.take();
}

std::vector<Tensor> other_inputs(const RandomGraph& of, int64_t rows, Choices& choices) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < of.inputs.size(); ++i) {
    const Tensor& first = of.inputs[i];
    Extents extents = first.extents();
    if (!of.graph.type(of.graph.inputs[i]).is_static()) extents[0] = rows;
    // Elements of the first ones: what a divisor or an index may be, it is here.
    Tensor tensor = Tensor::zeros(first.dtype(), extents);
    if (first.elements() > 0) {
      SeededChoices own(choices.word());
      for (int64_t j = 0; j < tensor.elements(); ++j) {
        const int64_t from = own.between(0, first.elements() - 1);
        if (ir::is_float(first.dtype())) {
          tensor.set(j, first.get(from));
        } else {
          tensor.set_i64(j, first.get_i64(from));
        }
      }
    }
    inputs.push_back(std::move(tensor));
  }
  return inputs;
}

}  // namespace heddle::differential
