// BitCast: the bytes as they are, read as another dtype.
#include <cstring>

#include "drivers/host/kernels/movement/movement.h"

namespace heddle::host {

namespace {

// The same bits as another dtype. A bool is 0 or 1 wherever they come from.
class BitCastStep final : public Step {
 public:
  explicit BitCastStep(const Lowering& lowering) : from_(lowering.inputs[0]), to_(lowering.outputs[0]) {}
  Status run(const RunContext& context) const override {
    const std::byte* from = context.read(from_);
    std::byte* to = context.write(to_);
    const int64_t bytes = to_.elements() * ir::size_of(to_.dtype);
    if (to_.dtype == ir::DType::kBool) {
      for (int64_t i = 0; i < bytes; ++i) to[i] = from[i] == std::byte{0} ? std::byte{0} : std::byte{1};
    } else if (bytes > 0) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    }
    return {};
  }

 private:
  Operand from_;
  Operand to_;
};

}  // namespace

LoweredStep lower_bit_cast(Lowering& lowering) {
  return std::unique_ptr<Step>(std::make_unique<BitCastStep>(lowering));
}

}  // namespace heddle::host
