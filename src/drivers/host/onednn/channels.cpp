#include "drivers/host/onednn/channels.h"

#include <utility>

namespace heddle::host {
dnnl::memory::desc channels_last_desc(const Dims& dims, dnnl::memory::data_type type) {
  Dims strides(dims.size(), 1);
  int64_t next = dims[1];
  for (size_t i = dims.size(); i-- > 2;) {
    strides[i] = next;
    next *= dims[i];
  }
  strides[0] = next;
  return {dims, type, strides};
}

Result<Turned> Turned::make(const Engine& engine, const Operand& operand, Way way, uint64_t& scratch,
                            int width, bool bf16) {
  Turned turned;
  turned.operand_ = operand;
  const bool given = operand.narrow || (bf16 && operand.half == ir::DType::kBF16);
  const bool widened = operand.half.has_value() && !given;
  turned.narrow_ = given;
  int64_t spatial = 1;
  for (size_t i = 2; i < operand.extents.rank(); ++i) spatial *= operand.extents[i];
  const bool lies_so = operand.channels_last || spatial == 1 || operand.extents[1] == 1;
  if (lies_so && !widened) return turned;  // one order or the other: the same bytes
  turned.narrow_ = given || (bf16 && !widened);
  HEDDLE_TRY_ASSIGN(const auto layouts, caught("describing a change of layout", [&] {
                      const Dims dims = to_dims(operand.extents);
                      const auto outside = widened ? float_type(operand.half) : float_type(given);
                      return std::pair(dnnl::memory::desc(dims, outside, dense_strides(dims)),
                                       channels_last_desc(dims, float_type(turned.narrow_)));
                    }));
  HEDDLE_TRY_ASSIGN(turned.change_,
                    LayoutChange::make(engine, layouts.first, layouts.second, way, scratch, width));
  return turned;
}

}  // namespace heddle::host
