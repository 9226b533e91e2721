// Operators that write by index into a copy of their first operand, or into itself where the result is its
// memory. Indices are checked before anything is written; updates of one place are taken in order, by one
// thread. Where an index outside is one row's mistake, its update is left out.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "drivers/host/kernels/elementwise/chunks.h"
#include "drivers/host/kernels/elementwise/elements.h"
#include "drivers/host/kernels/movement/indices.h"
#include "drivers/host/kernels/movement/strided.h"

namespace heddle::host {

namespace {

enum class Join : uint8_t { kReplace, kAdd, kMultiply, kMost, kLeast };

Join join_of(const ir::Node& node) {
  const std::string given = node.attributes.str("reduction", "none");
  if (given == "add") return Join::kAdd;
  if (given == "mul") return Join::kMultiply;
  if (given == "max") return Join::kMost;
  return given == "min" ? Join::kLeast : Join::kReplace;
}

// A NaN on either side wins.
template <class Number>
Number joined(Join join, Number a, Number b) {
  if constexpr (std::is_floating_point_v<Number>) {
    if (join != Join::kReplace && (a != a || b != b)) return a + b;
  }
  switch (join) {
    case Join::kAdd:
      return plus(a, b);
    case Join::kMultiply:
      return times(a, b);
    case Join::kMost:
      return std::max(a, b);
    case Join::kLeast:
      return std::min(a, b);
    case Join::kReplace:
      return b;
  }
  return b;
}

class ScatterStep : public Step {
 public:
  explicit ScatterStep(const Lowering& lowering)
      : from_(lowering.inputs[0]),
        updates_(lowering.inputs[2]),
        to_(lowering.outputs[0]),
        join_(join_of(lowering.node)),
        size_(ir::size_of(to_.dtype)),
        width_(lowering.width) {}

  bool may_write_over(size_t input) const override { return input == 0; }

 protected:
  void copy_operand(const RunContext& context) const {
    const std::byte* from = context.read(from_);
    std::byte* to = context.write(to_);
    if (from == to) return;
    split(context.caller, to_.elements(), 4096, to_.elements(), width_, [&](int64_t begin, int64_t end, int) {
      std::memcpy(to + begin * size_, from + begin * size_, static_cast<size_t>((end - begin) * size_));
    });
  }

  // `count` updates that lie together, on places that lie together.
  void write(const RunContext& context, int64_t to, int64_t from, int64_t count) const {
    if (join_ == Join::kReplace) {
      std::memcpy(context.write(to_) + to * size_, context.read(updates_) + from * size_,
                  static_cast<size_t>(count * size_));
      return;
    }
    with_codec(to_.dtype, [&]<class Codec>(Codec) {
      using Memory = typename Codec::Memory;
      Memory* y = context.write<Memory>(to_) + to;
      const Memory* x = context.read<Memory>(updates_) + from;
      for (int64_t i = 0; i < count; ++i)
        y[i] = Codec::put(joined(join_, Codec::get(y[i]), Codec::get(x[i])));
    });
  }

  Operand from_;
  Operand updates_;
  Operand to_;
  Join join_;
  int64_t size_;
  int width_;
};

class ScatterElementsStep final : public ScatterStep {
 public:
  ScatterElementsStep(const Lowering& lowering, size_t axis)
      : ScatterStep(lowering),
        indices_(lowering, 1),
        axis_(axis),
        extent_(to_.extents[axis]),
        stride_(row_major(to_.extents)[axis]) {
    // The result as the indices walk it: its axis does not move with them.
    auto strides = row_major(to_.extents);
    strides[axis] = 0;
    walk_ = Strided::make(indices_.extents().span(), strides);
  }

  Status run(const RunContext& context) const override {
    HEDDLE_TRY_ASSIGN(const bool outside, indices_.check(context, 0, 1, extent_));
    copy_operand(context);
    outside ? update<true>(context) : update<false>(context);
    return {};
  }

 private:
  template <bool kOutside>
  void update(const RunContext& context) const {
    const Positions positions = indices_.positions(context);
    const int64_t count = indices_.elements();
    if (count == 0) return;
    // Slices along axis 0 meet only when that is the axis of the indices.
    const int64_t slices = axis_ == 0 ? 1 : indices_.extents()[0];
    const int64_t slice = count / slices;
    split(context.caller, slices, 1, count * 4, width_, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin * slice; i < end * slice; ++i) {
        const int64_t at = positions.of<kOutside>(i, extent_);
        if (kOutside && at == Positions::kNone) continue;
        write(context, walk_.offset_of(i) + at * stride_, i, 1);
      }
    });
  }

  Indices indices_;
  size_t axis_;
  int64_t extent_;
  int64_t stride_;
  Strided walk_;
};

class ScatterNdStep final : public ScatterStep {
 public:
  explicit ScatterNdStep(const Lowering& lowering) : ScatterStep(lowering), points_(lowering, 1, 0) {
    for (size_t i = points_.depth(); i < to_.extents.rank(); ++i) slice_ *= to_.extents[i];
  }

  Status run(const RunContext& context) const override {
    HEDDLE_TRY_ASSIGN(const bool outside, points_.check(context));
    copy_operand(context);
    outside ? update<true>(context) : update<false>(context);
    return {};
  }

 private:
  template <bool kOutside>
  void update(const RunContext& context) const {
    if (updates_.elements() == 0) return;
    const Positions positions = points_.positions(context);
    for (int64_t row = 0; row < updates_.elements() / slice_; ++row) {
      const int64_t target = points_.offset<kOutside>(positions, row);
      if (kOutside && target == Positions::kNone) continue;
      write(context, target, row * slice_, slice_);
    }
  }

  Points points_;
  int64_t slice_ = 1;  // elements that one row of indices writes
};

}  // namespace

LoweredStep lower_scatter_elements(Lowering& lowering) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(lowering, 0));
  return std::unique_ptr<Step>(std::make_unique<ScatterElementsStep>(lowering, axis));
}

LoweredStep lower_scatter_nd(Lowering& lowering) {
  return std::unique_ptr<Step>(std::make_unique<ScatterNdStep>(lowering));
}

}  // namespace heddle::host
