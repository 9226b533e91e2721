// Operators about order along one axis: TopK, CumSum and CumProd.
#include <algorithm>

#include "drivers/host/kernels/elementwise/chunks.h"
#include "drivers/host/kernels/elementwise/elements.h"
#include "drivers/host/kernels/movement/movement.h"
#include "drivers/host/machine/aligned_bytes.h"

namespace heddle::host {

namespace {

class TopKStep final : public Step {
 public:
  TopKStep(const Lowering& lowering, size_t axis)
      : from_(lowering.inputs[0]),
        values_(lowering.outputs[0]),
        indices_(lowering.outputs[1]),
        lanes_(from_.extents, axis),
        k_(values_.extents[axis]),
        largest_(lowering.node.attributes.i64("largest", 1) != 0),
        width_(lowering.width) {}

  Status run(const RunContext& context) const override {
    if (values_.elements() == 0) return {};
    split(context.caller, lanes_.outer * lanes_.inner, 1, from_.elements() * 8, width_,
          [&](int64_t begin, int64_t end, int piece) {
            std::byte* scratch = context.arena + scratch_ + static_cast<uint64_t>(piece) * scratch_of_piece();
            with_codec(from_.dtype, [&]<class Codec>(Codec) { select<Codec>(context, begin, end, scratch); });
          });
    return {};
  }

  uint64_t scratch_bytes() const override {
    return scratch_of_piece() * static_cast<uint64_t>(width_ * kPiecesPerThread);
  }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  Sharing sharing() const override {
    return sharing_of_split(lanes_.outer * lanes_.inner, 1, from_.elements() * 8, width_, "lanes");
  }

 private:
  uint64_t scratch_of_piece() const { return aligned(static_cast<uint64_t>(lanes_.extent) * 16); }

  template <class Codec>
  void select(const RunContext& context, int64_t begin, int64_t end, std::byte* scratch) const {
    using Memory = typename Codec::Memory;
    struct Item {
      typename Codec::Number key;
      int64_t index;
    };
    static_assert(sizeof(Item) == 16);
    Item* items = reinterpret_cast<Item*>(scratch);
    const Memory* from = context.read<Memory>(from_);
    Memory* values = context.write<Memory>(values_);
    int64_t* indices = context.write<int64_t>(indices_);
    for (int64_t lane = begin; lane < end; ++lane) {
      const int64_t o = lane / lanes_.inner, i = lane % lanes_.inner;
      const Memory* row = from + o * lanes_.extent * lanes_.inner + i;
      for (int64_t a = 0; a < lanes_.extent; ++a) items[a] = {Codec::get(row[a * lanes_.inner]), a};
      const auto before = [this](const Item& x, const Item& y) {
        if (exceeds(x.key, y.key)) return largest_;
        if (exceeds(y.key, x.key)) return !largest_;
        return x.index < y.index;
      };
      std::partial_sort(items, items + k_, items + lanes_.extent, before);
      for (int64_t a = 0; a < k_; ++a) {
        const int64_t at = (o * k_ + a) * lanes_.inner + i;
        values[at] = row[items[a].index * lanes_.inner];
        indices[at] = items[a].index;
      }
    }
  }

  Operand from_;
  Operand values_;
  Operand indices_;
  Lanes lanes_;
  int64_t k_;
  bool largest_;
  int width_;
  uint64_t scratch_ = 0;
};

class CumulativeStep final : public Step {
 public:
  explicit CumulativeStep(const Lowering& lowering)
      : from_(lowering.inputs[0]),
        axis_(lowering.inputs[1]),
        to_(lowering.outputs[0]),
        node_(lowering.node.describe()),
        multiply_(lowering.node.is("CumProd")),
        exclusive_(lowering.node.attributes.i64("exclusive") != 0),
        reverse_(lowering.node.attributes.i64("reverse") != 0),
        width_(lowering.width) {}

  Status run(const RunContext& context) const override {
    const int64_t axis = read_index(context, axis_, 0);
    const Result<size_t> place = ir::normalize_axis(axis, from_.extents.rank());
    if (!place.ok()) return place.status().with_context(node_);
    if (to_.elements() == 0) return {};
    const Lanes lanes(from_.extents, *place);
    split(context.caller, lanes.outer * lanes.inner, 16, to_.elements(), width_,
          [&](int64_t begin, int64_t end, int) {
            with_codec(from_.dtype, [&]<class Codec>(Codec) { scan<Codec>(context, lanes, begin, end); });
          });
    return {};
  }

 private:
  template <class Codec>
  void scan(const RunContext& context, const Lanes& lanes, int64_t begin, int64_t end) const {
    using Memory = typename Codec::Memory;
    for (int64_t lane = begin; lane < end; ++lane) {
      const int64_t first = lane / lanes.inner * lanes.extent * lanes.inner + lane % lanes.inner;
      const Memory* from = context.read<Memory>(from_) + first;
      Memory* to = context.write<Memory>(to_) + first;
      typename Codec::Number total = multiply_ ? 1 : 0;
      for (int64_t n = 0; n < lanes.extent; ++n) {
        const int64_t at = (reverse_ ? lanes.extent - 1 - n : n) * lanes.inner;
        const auto before = total;
        total = multiply_ ? times(total, Codec::get(from[at])) : plus(total, Codec::get(from[at]));
        to[at] = Codec::put(exclusive_ ? before : total);
      }
    }
  }

  Operand from_;
  Operand axis_;
  Operand to_;
  std::string node_;
  bool multiply_;
  bool exclusive_;
  bool reverse_;
  int width_;
};

}  // namespace

LoweredStep lower_top_k(Lowering& lowering) {
  HEDDLE_TRY_ASSIGN(const size_t axis, axis_of(lowering, -1));
  return std::unique_ptr<Step>(std::make_unique<TopKStep>(lowering, axis));
}

LoweredStep lower_cumulative(Lowering& lowering) {
  return std::unique_ptr<Step>(std::make_unique<CumulativeStep>(lowering));
}

}  // namespace heddle::host
