// MTLCommandQueue.h: where command buffers come from and in whose order they run.
//
//   Blocks    commandBuffer, while 64 (or maxCommandBufferCount) of its buffers have not completed.
#pragma once

#import <Metal/MTLCommandBuffer.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLCommandQueue <NSObject>
@property(nullable, copy, atomic) NSString* label;
@property(readonly) id<MTLDevice> device;
- (nullable id<MTLCommandBuffer>)commandBuffer;
- (nullable id<MTLCommandBuffer>)commandBufferWithDescriptor:(MTLCommandBufferDescriptor*)descriptor;
- (nullable id<MTLCommandBuffer>)commandBufferWithUnretainedReferences;
@end

NS_ASSUME_NONNULL_END
