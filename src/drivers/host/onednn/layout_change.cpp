#include "drivers/host/onednn/layout_change.h"

#include <array>

#include "base/trace.h"
#include "drivers/host/machine/aligned_bytes.h"

namespace heddle::host {
namespace {

uint64_t reserve(uint64_t& scratch, uint64_t bytes) {
  const uint64_t at = scratch;
  scratch += aligned(bytes);
  return at;
}

}  // namespace

Result<LayoutChange> LayoutChange::make(const Engine& engine, const dnnl::memory::desc& outside,
                                        const dnnl::memory::desc& inside, Way way, uint64_t& scratch) {
  using Desc = dnnl::reorder::primitive_desc;
  LayoutChange change;
  change.way_ = way;
  HEDDLE_TRY_ASSIGN(const Desc desc, caught("preparing a change of layout", [&] {
                      const auto& from = way == Way::kInput ? outside : inside;
                      const auto& to = way == Way::kInput ? inside : outside;
                      return Desc(engine.cpu, from, engine.cpu, to, engine.attributes());
                    }));
  HEDDLE_TRY_ASSIGN(change.reorder_,
                    (Primitive::make<Desc, dnnl::reorder>(
                        engine, desc, {{DNNL_ARG_FROM, desc.src_desc()}, {DNNL_ARG_TO, desc.dst_desc()}})));
  change.offset_ = reserve(scratch, inside.get_size());
  change.reorder_scratch_ = reserve(scratch, change.reorder_->scratch_bytes());
  return change;
}

Status LayoutChange::run(const RunContext& context, uint64_t base, const std::byte* outside) const {
  if (reorder_ == nullptr) return {};
  const trace::Span span("layout", "reorder");
  const std::byte* inside = address(context, base);
  const std::byte* scratch = context.arena + base + reorder_scratch_;
  return way_ == Way::kInput ? reorder_->run(std::array<const void*, 3>{outside, inside, scratch})
                             : reorder_->run(std::array<const void*, 3>{inside, outside, scratch});
}

}  // namespace heddle::host
