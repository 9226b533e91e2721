#include "drivers/host/onednn/channels.h"

#include <array>

#include "base/trace.h"
#include "drivers/host/aligned_bytes.h"

namespace heddle::host {
namespace {

uint64_t reserve(uint64_t& scratch, uint64_t bytes) {
  const uint64_t at = scratch;
  scratch += aligned(bytes);
  return at;
}

}  // namespace

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
                            bool narrow) {
  Turned turned;
  turned.operand_ = operand;
  turned.way_ = way;
  turned.narrow_ = operand.narrow;
  int64_t spatial = 1;
  for (size_t i = 2; i < operand.extents.rank(); ++i) spatial *= operand.extents[i];
  if (operand.channels_last || spatial == 1 || operand.extents[1] == 1)
    return turned;  // one order or the other: the same bytes
  turned.narrow_ = operand.narrow || narrow;
  using Desc = dnnl::reorder::primitive_desc;
  HEDDLE_TRY_ASSIGN(
      Desc desc, caught("preparing a change of layout", [&] {
        const Dims dims = to_dims(operand.extents);
        const dnnl::memory::desc plain(dims, float_type(operand.narrow), f32_desc(dims).get_strides());
        const dnnl::memory::desc last = channels_last_desc(dims, float_type(turned.narrow_));
        return way == Way::kInput ? Desc(engine.cpu, plain, engine.cpu, last, engine.attributes())
                                  : Desc(engine.cpu, last, engine.cpu, plain, engine.attributes());
      }));
  HEDDLE_TRY_ASSIGN(turned.reorder_,
                    (Primitive::make<Desc, dnnl::reorder>(
                        engine, desc, {{DNNL_ARG_FROM, desc.src_desc()}, {DNNL_ARG_TO, desc.dst_desc()}})));
  turned.offset_ = reserve(scratch, static_cast<uint64_t>(operand.elements() * turned.element_bytes()));
  turned.reorder_scratch_ = reserve(scratch, turned.reorder_->scratch_bytes());
  return turned;
}

Status Turned::run(const RunContext& context, uint64_t base) const {
  if (reorder_ == nullptr) return {};
  const trace::Span span("layout", "reorder");
  const std::byte* own = context.arena + base + offset_;
  const std::byte* outside = context.write(operand_);
  const std::byte* scratch = context.arena + base + reorder_scratch_;
  return way_ == Way::kInput ? reorder_->run(std::array<const void*, 3>{outside, own, scratch})
                             : reorder_->run(std::array<const void*, 3>{own, outside, scratch});
}

}  // namespace heddle::host
