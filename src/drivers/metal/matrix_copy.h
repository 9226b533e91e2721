// matrix_copy.h: the strided copy that MPS has, which a test uses instead of ours (defences.h).
//
//   Threads    The queue's owner, while it submits.
#pragma once

#import <Metal/Metal.h>

#include "ir/tensor_type.h"

namespace heddle::metal {

struct MatrixView {
  id<MTLBuffer> buffer;
  uint64_t offset;  // bytes
  const ir::Extents& strides;
};

// False, and nothing is encoded, where MPS has none: other ranks, no axis whose elements lie side by side.
bool copy_by_mps(id<MTLDevice> device, id<MTLCommandBuffer> commands, const MatrixView& from,
                 const MatrixView& to, ir::DType dtype, const ir::Extents& extents);

}  // namespace heddle::metal
