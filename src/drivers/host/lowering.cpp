#include "drivers/host/lowering.h"

namespace heddle::host {

namespace {

constexpr std::span<const LoweringEntry> (*kFamilies[])() = {
    elementwise_lowerings, movement_lowerings,  reduction_lowerings, row_lowerings,
    matmul_lowerings,      conv_lowerings,      attention_lowerings, recurrent_lowerings,
    integer_lowerings,     reference_lowerings, control_lowerings,
};

}  // namespace

Status Lowering::has_room_for(uint64_t bytes, std::string_view what) const {
  if (bytes <= bytes_left) return {};
  return Status::exhausted(what, " takes ", bytes, " bytes; the memory limit leaves ", bytes_left);
}

Lower find_lowering(std::string_view op) {
  for (const auto family : kFamilies) {
    for (const LoweringEntry& entry : family()) {
      if (entry.op == op) return entry.lower;
    }
  }
  return nullptr;
}

}  // namespace heddle::host
