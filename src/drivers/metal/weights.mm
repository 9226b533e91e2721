#include "drivers/metal/weights.h"

#include <cstring>

namespace heddle::metal {
namespace {

// Read only, from before the first command buffer that names them on: nothing for Metal to track.
constexpr MTLResourceOptions kWeight = MTLResourceStorageModeShared | MTLResourceHazardTrackingModeUntracked;

}  // namespace

Result<Ref<const Weights>> Weights::make(id<MTLDevice> device, const ir::Graph& graph,
                                         device::Source& source) {
  auto weights = std::make_shared<Weights>();
  Status status;
  ir::each_constant(graph, [&](const ir::Tensor& tensor) {
    if (!status.ok() || tensor.bytes() < kSmallest || weights->by_bytes_.contains(tensor.data())) return;
    auto charge = source.charge(static_cast<uint64_t>(tensor.bytes()));
    if (!charge.ok()) {
      status = charge.status();
      return;
    }
    weights->charges_.push_back(std::move(charge).value());
    auto buffer =
        Owned<id<MTLBuffer>>::adopt([device newBufferWithBytes:tensor.data()
                                                        length:static_cast<NSUInteger>(tensor.bytes())
                                                       options:kWeight]);
    if (!buffer) {
      status = Status::exhausted("Metal has no memory for a weight of ", tensor.bytes(), " bytes, after ",
                                 weights->bytes_, " bytes of others");
      return;
    }
    weights->by_bytes_.emplace(tensor.data(), weights->tensors_.size());
    weights->tensors_.push_back(tensor);
    weights->buffers_.push_back(std::move(buffer));
    weights->bytes_ += static_cast<uint64_t>(tensor.bytes());
  });
  HEDDLE_TRY(status);
  return Ref<const Weights>(std::move(weights));
}

std::optional<size_t> Weights::find(const ir::Tensor& constant) const {
  const auto found = by_bytes_.find(constant.data());
  if (found == by_bytes_.end() || !(tensors_[found->second].type() == constant.type())) return std::nullopt;
  return found->second;
}

}  // namespace heddle::metal
