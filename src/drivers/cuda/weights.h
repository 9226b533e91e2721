// weights.h: constants in memory of the device: a module's, once for all its shapes, or a program's own.
//
//   What       One buffer holds all of them. A constant is found by its bytes and its size.
//   Threads    Immutable.
//   Blocks     make(): until the GPU has them.
//   Lifetime   The module's and its programs'.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/once_map.h"
#include "device/buffer.h"
#include "drivers/cuda/driver/open_device.h"
#include "ir/graph.h"

namespace heddle::cuda {

class Weights {
 public:
  // Of `graph` and the graphs inside its nodes, but for those that `others` (null: none) has.
  static Result<Ref<const Weights>> make(const Ref<const OpenDevice>& device, const ir::Graph& graph,
                                         const Weights* others, device::Source& source);
  static Result<Ref<const Weights>> make(const Ref<const OpenDevice>& device, std::vector<ir::Tensor> tensors,
                                         device::Source& source);

  std::optional<Address> find(const ir::Tensor& constant) const;
  uint64_t bytes() const { return buffer_ == nullptr ? 0 : buffer_->bytes(); }

 private:
  std::vector<ir::Tensor> tensors_;  // share their bytes with the graph, which keeps their addresses apart
  std::map<std::pair<const void*, int64_t>, uint64_t> offsets_;
  Ref<device::Buffer> buffer_;  // null: nothing has bytes
};

// [M, C, plane..] of a convolution as [M, plane.., C].
ir::Tensor with_channels_last(const ir::Tensor& weight);

struct TurnedWeight {
  ir::Tensor weight, turned;  // the first keeps its address apart
  Ref<const Weights> weights;
};

// Weights of a module's convolutions with their channels last. Each is made when the first of its programs
// wants it. Any thread; find() blocks until the GPU has it.
class TurnedWeights {
 public:
  explicit TurnedWeights(Ref<const OpenDevice> device) : device_(std::move(device)) {}

  Result<Ref<const TurnedWeight>> find(const ir::Tensor& weight, device::Source& source) const;

 private:
  const Ref<const OpenDevice> device_;
  mutable OnceMap<const void*, TurnedWeight> made_;  // by the weight's bytes
};

}  // namespace heddle::cuda
