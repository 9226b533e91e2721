// encoders.h: the encoder classes of the AGX double, one per kind, each with its own _impl at its own offset.
//
//   Hierarchy IOGPUMetalCommandEncoder (label, debug groups, end) -> AGXG16XFamily*Context -> *_mtlnext.
//   Ending    -endEncoding -> -deferredEndEncoding -> -destroyImpl, which races as context.h says. -dealloc
//             calls -destroyImpl too.
#pragma once

#import <Metal/Metal.h>

#include "context.h"

@class AGXG16XFamilyCommandBuffer;

@interface IOGPUMetalCommandEncoder : NSObject {
 @public
  AGXG16XFamilyCommandBuffer* _commandBuffer;
  NSString* _label;
}
- (instancetype)initWithCommandBuffer:(AGXG16XFamilyCommandBuffer*)buffer;
- (agx_double::Context**)context;
- (void)deferredEndEncoding;
- (void)destroyImpl;
@end

@interface AGXG16XFamilyComputeContext : IOGPUMetalCommandEncoder <MTLComputeCommandEncoder> {
 @public
  agx_double::Context* _impl;
}
@end

// Newer systems' compute encoder: overrides what it speeds up and calls super.
@interface AGXG16XFamilyComputeContext_mtlnext : AGXG16XFamilyComputeContext {
 @public
  NSUInteger _dispatches;
}
@end

// What macOS 26 adds to MTLBlitCommandEncoder; the double's own header has what macOS 14 has.
@protocol AGXTensorCopies
- (void)copyFromTensor:(id)sourceTensor
             sourceOrigin:(id)sourceOrigin
         sourceDimensions:(id)sourceDimensions
                 toTensor:(id)destinationTensor
        destinationOrigin:(id)destinationOrigin
    destinationDimensions:(id)destinationDimensions;
@end

@interface AGXG16XFamilyBlitContext : IOGPUMetalCommandEncoder <MTLBlitCommandEncoder, AGXTensorCopies> {
 @public
  uint64_t _copies[6];  // _impl lies elsewhere than in the compute context
  agx_double::Context* _impl;
}
@end

@interface AGXG16XFamilyRenderContext : IOGPUMetalCommandEncoder <MTLRenderCommandEncoder> {
 @public
  uint64_t _viewport[24];
  agx_double::Context* _impl;
}
@end

@interface AGXG16XFamilyParallelRenderContext : IOGPUMetalCommandEncoder <MTLParallelRenderCommandEncoder> {
 @public
  agx_double::Context* _impl;
}
@end

@interface AGXG16XFamilyResourceStateContext : IOGPUMetalCommandEncoder <MTLResourceStateCommandEncoder> {
 @public
  uint64_t _mappings[2];
  agx_double::Context* _impl;
}
@end

@interface AGXG16XFamilyAccelerationStructureContext
    : IOGPUMetalCommandEncoder <MTLAccelerationStructureCommandEncoder> {
 @public
  uint64_t _builds[3];
  agx_double::Context* _impl;
}
@end

@interface AGXFence : NSObject <MTLFence> {
 @public
  int _updates;
}
@end
