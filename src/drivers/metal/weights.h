// weights.h: a module's weights in buffers of the device, once, for all its shapes and threads.
//
//   What       Every constant of the optimised graph of kSmallest bytes or more has a buffer, which lowered
//              programs take as a feed. Smaller ones, and what specialising folds, belong to a program.
//   Invariant  Written before the first read, never after: the buffers are untracked, Metal orders nothing.
//   Threads    Immutable.
//   Lifetime   The module's and its programs'.
#pragma once

#import <Metal/Metal.h>

#include <map>
#include <optional>
#include <vector>

#include "base/status.h"
#include "device/buffer.h"
#include "drivers/metal/owned.h"
#include "ir/graph.h"

namespace heddle::metal {

class Weights {
 public:
  static constexpr int64_t kSmallest = 1024;
  static Result<Ref<const Weights>> make(id<MTLDevice> device, const ir::Graph& graph,
                                         device::Source& source);

  // Which buffer holds this constant; none: it belongs into the program.
  std::optional<size_t> find(const ir::Tensor& constant) const;
  const ir::Tensor& tensor(size_t index) const { return tensors_[index]; }
  id<MTLBuffer> buffer(size_t index) const { return buffers_[index].get(); }
  size_t size() const { return buffers_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  std::vector<ir::Tensor> tensors_;  // share their bytes with the graph
  std::vector<Owned<id<MTLBuffer>>> buffers_;
  std::map<const void*, size_t> by_bytes_;
  uint64_t bytes_ = 0;
  std::vector<Ref<const void>> charges_;  // untracked buffers are not the allocator's, which counts them
};

}  // namespace heddle::metal
