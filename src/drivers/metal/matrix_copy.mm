#include "drivers/metal/matrix_copy.h"

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

#include "drivers/metal/lowering/emit.h"
#include "drivers/metal/owned.h"

namespace heddle::metal {
namespace {

bool transposed(const ir::Extents& strides) { return strides[1] != 1; }

bool is_matrix(const ir::Extents& strides) {
  return (strides[1] == 1 && strides[0] > 0) || (strides[0] == 1 && strides[1] > 0);
}

Owned<MPSMatrix*> matrix(const MatrixView& view, ir::DType dtype, const ir::Extents& extents) {
  const bool turned = transposed(view.strides);
  const auto pitch = static_cast<NSUInteger>(view.strides[turned ? 1 : 0] * ir::size_of(dtype));
  MPSMatrixDescriptor* const shape =
      [MPSMatrixDescriptor matrixDescriptorWithRows:static_cast<NSUInteger>(extents[turned ? 1 : 0])
                                            columns:static_cast<NSUInteger>(extents[turned ? 0 : 1])
                                           rowBytes:pitch
                                           dataType:type_of(dtype)];
  return Owned<MPSMatrix*>::adopt([[MPSMatrix alloc] initWithBuffer:view.buffer
                                                             offset:view.offset
                                                         descriptor:shape]);
}

}  // namespace

bool copy_by_mps(id<MTLDevice> device, id<MTLCommandBuffer> commands, const MatrixView& from,
                 const MatrixView& to, ir::DType dtype, const ir::Extents& extents) {
  if (extents.rank() != 2 || !is_matrix(from.strides) || !is_matrix(to.strides)) return false;
  const auto copy =
      Owned<MPSMatrixCopy*>::adopt([[MPSMatrixCopy alloc] initWithDevice:device
                                                                copyRows:static_cast<NSUInteger>(extents[0])
                                                             copyColumns:static_cast<NSUInteger>(extents[1])
                                                    sourcesAreTransposed:transposed(from.strides)
                                               destinationsAreTransposed:transposed(to.strides)]);
  const Owned<MPSMatrix*> source = matrix(from, dtype, extents), target = matrix(to, dtype, extents);
  [copy.get() encodeToCommandBuffer:commands
                     copyDescriptor:[MPSMatrixCopyDescriptor descriptorWithSourceMatrix:source.get()
                                                                      destinationMatrix:target.get()
                                                                                offsets:{0, 0, 0, 0}]];
  return true;
}

}  // namespace heddle::metal
