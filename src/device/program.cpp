#include "device/program.h"

namespace heddle::device {
namespace {

// At most kMaxBytes each: a sum of 64 bits holds those of any graph that fits into memory.
uint64_t bytes_of(const ir::TensorType& type) {
  return static_cast<uint64_t>(type.extents()->elements() * ir::size_of(type.dtype));
}

}  // namespace

Result<ProgramPlan> Module::plan(std::span<const ir::Extents>, uint64_t, NoLocksHeld) const {
  return Status::unsupported("this device's driver does not say what a program would do");
}

Status check_memory(const ir::Graph& specialised, uint64_t arena_bytes, uint64_t weight_bytes,
                    uint64_t bytes_max) {
  uint64_t outputs = 0;
  for (const ir::ValueId id : specialised.outputs) outputs += bytes_of(specialised.type(id));
  const uint64_t needed = arena_bytes + weight_bytes + outputs;
  if (needed <= bytes_max) return {};
  const ir::Node* largest = nullptr;
  uint64_t most = 0;
  for (const ir::Node& node : specialised.nodes) {
    for (const ir::ValueId id : node.outputs) {
      if (id == ir::kNoValue || bytes_of(specialised.type(id)) <= most) continue;
      most = bytes_of(specialised.type(id));
      largest = &node;
    }
  }
  return Status::exhausted(
      "a run needs ", needed, " bytes: ", weight_bytes, " of weights, ", arena_bytes, " between nodes, ",
      outputs, " of outputs",
      largest == nullptr ? std::string() : text(" (the most, ", most, ", by ", largest->describe(), ")"),
      "; the memory limit is ", bytes_max);
}

}  // namespace heddle::device
