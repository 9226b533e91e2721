#include "drivers/host/onednn/packed_weight.h"

#include <string>

namespace heddle::host {
namespace {

std::string layout_text(std::string_view kind, const dnnl::memory::desc& desc) {
  std::string out(kind);
  const auto add = [&](char mark, const Dims& numbers) {
    out += mark;
    for (int64_t n : numbers) out += text(n, ",");
  };
  add('d', desc.get_dims());
  add('p', desc.get_padded_dims());
  add('s', desc.get_strides());
  add('b', desc.get_inner_blks());
  add('i', desc.get_inner_idxs());
  return out;
}

}  // namespace

Result<Ref<const PackedWeight>> pack_weight(WeightStore& weights, std::string_view kind,
                                            const std::byte* constant, int64_t offset,
                                            const dnnl::memory::desc& plain,
                                            const dnnl::memory::desc& wanted) {
  const Engine& engine = weights.engine();
  return weights.get<PackedWeight>(
      constant, text(layout_text(kind, wanted), "o", offset), [&]() -> Result<Ref<const PackedWeight>> {
        auto weight = std::make_shared<PackedWeight>();
        weight->size = wanted.get_size();
        HEDDLE_TRY_ASSIGN(weight->data, weights.room(constant, weight->size));
        HEDDLE_TRY(status_of(caught("packing a weight", [&] {
          dnnl::memory from(plain, engine.cpu, const_cast<std::byte*>(constant) + offset);
          dnnl::memory to(wanted, engine.cpu, weight->data.get());
          dnnl::stream stream(engine.cpu);
          dnnl::reorder(from, to).execute(stream, from, to);
          return true;
        })));
        return Ref<const PackedWeight>(std::move(weight));
      });
}

Result<WeightOperand> WeightOperand::make(WeightStore& weights, std::string_view kind, const Operand& operand,
                                          const dnnl::memory::desc& plain, const dnnl::memory::desc& wanted,
                                          uint64_t& scratch, int width) {
  WeightOperand made;
  made.operand_ = operand;
  if (operand.location == Operand::Location::kConstant) {
    HEDDLE_TRY_ASSIGN(made.packed_, pack_weight(weights, kind, operand.constant, 0, plain, wanted));
    return made;
  }
  const Engine& engine = weights.engine();
  HEDDLE_TRY_ASSIGN(const bool lies_so, caught("comparing layouts", [&] { return plain == wanted; }));
  if (lies_so) return made;
  HEDDLE_TRY_ASSIGN(made.change_,
                    LayoutChange::make(engine, plain, wanted, LayoutChange::Way::kInput, scratch, width));
  return made;
}

}  // namespace heddle::host
