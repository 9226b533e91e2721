#include "drivers/cuda/weights.h"

#include <algorithm>
#include <cstring>

#include "drivers/cuda/memory.h"

namespace heddle::cuda {
namespace {

constexpr uint64_t kAlign = 256;
constexpr uint64_t kPiece = 8 << 20;  // bytes that are pinned at once

// Piece by piece through pinned memory.
Status upload(const Ref<const OpenDevice>& device, Pinned& pinned, const ir::Tensor& tensor, Address to) {
  const auto* from = static_cast<const std::byte*>(tensor.data());
  for (auto left = static_cast<uint64_t>(tensor.bytes()); left > 0;) {
    const uint64_t piece = std::min(left, pinned.bytes());
    std::memcpy(pinned.host(), from, piece);
    const Current current(*device);
    HEDDLE_TRY(device->check(device->api.copy(to, pinned.address(), piece, device->stream), "cuMemcpyAsync"));
    HEDDLE_TRY(device->check(device->api.stream_synchronize(device->stream), "the upload of a weight"));
    from += piece;
    to += piece;
    left -= piece;
  }
  return {};
}

}  // namespace

Result<Ref<const Weights>> Weights::make(const Ref<const OpenDevice>& device, const ir::Graph& graph,
                                         const Weights* others, device::Source& source) {
  std::vector<ir::Tensor> tensors;
  ir::each_constant(graph, [&](const ir::Tensor& tensor) {
    if (others == nullptr || !others->find(tensor).has_value()) tensors.push_back(tensor);
  });
  return make(device, std::move(tensors), source);
}

Result<Ref<const Weights>> Weights::make(const Ref<const OpenDevice>& device, std::vector<ir::Tensor> tensors,
                                         device::Source& source) {
  auto weights = std::make_shared<Weights>();
  uint64_t bytes = 0, largest = 0;
  for (const ir::Tensor& tensor : tensors) {
    const std::pair key(tensor.data(), tensor.bytes());
    if (tensor.bytes() == 0 || !weights->offsets_.try_emplace(key, bytes).second) continue;
    weights->tensors_.push_back(tensor);
    const auto size = static_cast<uint64_t>(tensor.bytes());
    bytes += (size + kAlign - 1) / kAlign * kAlign;
    largest = std::max(largest, size);
  }
  if (bytes == 0) return Ref<const Weights>(std::move(weights));
  HEDDLE_TRY_ASSIGN(weights->buffer_, source.allocate(bytes));
  HEDDLE_TRY_ASSIGN(const Ref<Pinned> pinned, Pinned::make(device, std::min(largest, kPiece)));
  for (const ir::Tensor& tensor : weights->tensors_)
    HEDDLE_TRY(upload(device, *pinned, tensor, *weights->find(tensor)));
  return Ref<const Weights>(std::move(weights));
}

ir::Tensor with_channels_last(const ir::Tensor& weight) {
  const ir::Extents& extents = weight.extents();
  const auto size = static_cast<size_t>(ir::size_of(weight.dtype()));
  const int64_t channels = extents[1], rows = extents[0];
  const int64_t plane = weight.elements() == 0 ? 0 : weight.elements() / (rows * channels);
  ir::Tensor turned = ir::Tensor::zeros(weight.dtype(), extents);
  const auto* from = weight.as<std::byte>();
  auto* to = static_cast<std::byte*>(turned.mutable_data());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t at = 0; at < plane; ++at) {
      for (int64_t channel = 0; channel < channels; ++channel, to += size)
        std::memcpy(to, from + static_cast<size_t>((row * channels + channel) * plane + at) * size, size);
    }
  }
  return turned;
}

Result<Ref<const TurnedWeight>> TurnedWeights::find(const ir::Tensor& weight, device::Source& source) const {
  const auto make = [&]() -> Result<Ref<const TurnedWeight>> {
    ir::Tensor turned = with_channels_last(weight);
    HEDDLE_TRY_ASSIGN(Ref<const Weights> weights, Weights::make(device_, {turned}, source));
    return std::make_shared<const TurnedWeight>(TurnedWeight{weight, std::move(turned), std::move(weights)});
  };
  return made_.get_or_make(weight.data(), make);
}

std::optional<Address> Weights::find(const ir::Tensor& constant) const {
  const auto found = offsets_.find({constant.data(), constant.bytes()});
  if (found == offsets_.end()) return std::nullopt;
  return buffer_->address() + found->second;
}

}  // namespace heddle::cuda
