// Operators that make elements rather than move them: OneHot, ConstantOfShape, Range, Shape, Size.
#include <cstring>

#include "drivers/host/kernels/elementwise/blocks.h"
#include "drivers/host/kernels/elementwise/chunks.h"
#include "drivers/host/kernels/movement/movement.h"
#include "drivers/host/kernels/movement/strided.h"

namespace heddle::host {

namespace {

class OneHotStep final : public Step {
 public:
  OneHotStep(const Lowering& lowering, size_t axis)
      : indices_(lowering.inputs[0]),
        values_(lowering.inputs[2]),
        to_(lowering.outputs[0]),
        lanes_(to_.extents, axis),
        width_(lowering.width) {}

  Status run(const RunContext& context) const override {
    const int64_t size = ir::size_of(to_.dtype);
    const std::byte* values = context.read(values_);
    std::byte* to = context.write(to_);
    const int64_t plane = lanes_.extent * lanes_.inner;
    if (plane == 0) return {};
    split(context.caller, lanes_.outer, 1, to_.elements(), width_, [&](int64_t begin, int64_t end, int) {
      fill(to + begin * plane * size, values, (end - begin) * plane, size);
      for (int64_t at = begin * lanes_.inner; at < end * lanes_.inner; ++at) {
        int64_t index = index_at(context, at);
        if (index < 0) index += lanes_.extent;
        if (index < 0 || index >= lanes_.extent) continue;  // lights nothing, as ONNX says
        const int64_t place = at / lanes_.inner * plane + index * lanes_.inner + at % lanes_.inner;
        std::memcpy(to + place * size, values + size, static_cast<size_t>(size));
      }
    });
    return {};
  }

 private:
  int64_t index_at(const RunContext& context, int64_t at) const {
    alignas(8) std::byte loaded[8];
    alignas(8) std::byte index[8];
    const std::byte* element = context.read(indices_) + at * ir::size_of(indices_.dtype);
    load_block(indices_.dtype)({element, nullptr, nullptr, loaded, 1, 0, 0});
    cast_block(kind_of(indices_.dtype), Kind::kI64)({loaded, nullptr, nullptr, index, 1, 0, 0});
    int64_t value;
    std::memcpy(&value, index, sizeof(value));
    return value;
  }

  Operand indices_;
  Operand values_;
  Operand to_;
  Lanes lanes_;
  int width_;
};

// Extents, and a repeated element: what they write is known when the step is made.
class ConstantStep final : public Step {
 public:
  ConstantStep(const Operand& to, ir::Tensor value) : to_(to), value_(std::move(value)) {}
  Status run(const RunContext& context) const override {
    const std::byte* from = static_cast<const std::byte*>(value_.data());
    if (value_.elements() == 1) {
      fill(context.write(to_), from, to_.elements(), ir::size_of(to_.dtype));
    } else {
      std::memcpy(context.write(to_), from, static_cast<size_t>(value_.bytes()));
    }
    return {};
  }

 private:
  Operand to_;
  ir::Tensor value_;
};

class RangeStep final : public Step {
 public:
  explicit RangeStep(const Lowering& lowering)
      : start_(lowering.inputs[0]), delta_(lowering.inputs[2]), to_(lowering.outputs[0]) {}
  Status run(const RunContext& context) const override {
    const int64_t size = ir::size_of(to_.dtype);
    const ir::Tensor start = ir::Tensor::borrow(to_.dtype, {}, context.read(start_), nullptr);
    const ir::Tensor delta = ir::Tensor::borrow(to_.dtype, {}, context.read(delta_), nullptr);
    for (int64_t i = 0; i < to_.elements(); ++i) {
      ir::Tensor y = ir::Tensor::borrow(to_.dtype, {}, context.write(to_) + i * size, nullptr);
      if (ir::is_float(to_.dtype)) {
        y.set(0, start.get(0) + static_cast<double>(i) * delta.get(0));
      } else {
        const uint64_t step = static_cast<uint64_t>(i) * static_cast<uint64_t>(delta.get_i64(0));
        y.set_i64(0, static_cast<int64_t>(static_cast<uint64_t>(start.get_i64(0)) + step));
      }
    }
    return {};
  }

 private:
  Operand start_;
  Operand delta_;
  Operand to_;
};

}  // namespace

LoweredStep lower_one_hot(Lowering& lowering) {
  HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(lowering.node.attributes.i64("axis", -1),
                                                          lowering.inputs[0].extents.rank() + 1));
  return std::unique_ptr<Step>(std::make_unique<OneHotStep>(lowering, axis));
}

LoweredStep lower_constant_of_shape(Lowering& lowering) {
  const ir::Attribute* value = lowering.node.attributes.find("value");
  const ir::Tensor* tensor = value == nullptr ? nullptr : std::get_if<ir::Tensor>(value);
  const Operand& to = lowering.outputs[0];
  return std::unique_ptr<Step>(
      std::make_unique<ConstantStep>(to, tensor == nullptr ? ir::Tensor::zeros(to.dtype, {}) : *tensor));
}

LoweredStep lower_range(Lowering& lowering) {
  return std::unique_ptr<Step>(std::make_unique<RangeStep>(lowering));
}

LoweredStep lower_extents(Lowering& lowering) {
  const ir::Extents& in = lowering.inputs[0].extents;
  const Operand& to = lowering.outputs[0];
  if (lowering.node.is("Size")) {
    return std::unique_ptr<Step>(
        std::make_unique<ConstantStep>(to, ir::Tensor::of_i64({in.elements()}).reshaped({})));
  }
  int64_t start = lowering.node.attributes.i64("start", 0);
  if (start < 0) start += static_cast<int64_t>(in.rank());
  start = std::clamp<int64_t>(start, 0, static_cast<int64_t>(in.rank()));
  const int64_t* first = in.begin() + start;
  return std::unique_ptr<Step>(std::make_unique<ConstantStep>(
      to, ir::Tensor::of_i64(std::vector<int64_t>(first, first + to.elements()))));
}

}  // namespace heddle::host
