// Trilu: one triangle of a matrix, zeros in the other.
#include <algorithm>
#include <cstring>

#include "drivers/host/kernels/elementwise/chunks.h"
#include "drivers/host/kernels/movement/movement.h"

namespace heddle::host {

namespace {

class TriluStep final : public Step {
 public:
  explicit TriluStep(const Lowering& lowering)
      : from_(lowering.inputs[0]),
        to_(lowering.outputs[0]),
        upper_(lowering.node.attributes.i64("upper", 1) != 0),
        width_(lowering.width) {
    if (lowering.node.has_input(1)) k_ = lowering.inputs[1];
  }

  Status run(const RunContext& context) const override {
    const int64_t k = k_.present() ? read_index(context, k_, 0) : 0;
    const size_t rank = to_.extents.rank();
    const int64_t rows = to_.extents[rank - 2], columns = to_.extents[rank - 1];
    const int64_t size = ir::size_of(to_.dtype);
    const int64_t count = columns == 0 ? 0 : to_.elements() / columns;
    const std::byte* from = context.read(from_);
    std::byte* to = context.write(to_);
    split(context.caller, count, 1, to_.elements(), width_, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        // Above the diagonal: columns from row + k on. Below: up to row + k. Bounds are compared before
        // they are added to row.
        const int64_t shift = std::clamp<int64_t>(k, -rows - 1, columns + 1);
        const int64_t border = std::clamp<int64_t>(row % rows + shift + (upper_ ? 0 : 1), 0, columns);
        const int64_t first = upper_ ? border : 0, last = upper_ ? columns : border;
        std::byte* line = to + row * columns * size;
        std::memset(line, 0, static_cast<size_t>(columns * size));
        std::memcpy(line + first * size, from + (row * columns + first) * size,
                    static_cast<size_t>((last - first) * size));
      }
    });
    return {};
  }

 private:
  Operand from_;
  Operand k_;
  Operand to_;
  bool upper_;
  int width_;
};

}  // namespace

LoweredStep lower_trilu(Lowering& lowering) {
  return std::unique_ptr<Step>(std::make_unique<TriluStep>(lowering));
}

}  // namespace heddle::host
