// MTLAccelerationStructureCommandEncoder.h: builds ray-tracing structures. The double builds none; it keeps
// the encoder's rules.
#pragma once

#import <Metal/MTLCommandEncoder.h>
#import <Metal/MTLFence.h>

NS_ASSUME_NONNULL_BEGIN

MTL_EXPORT @interface MTLAccelerationStructurePassDescriptor : NSObject<NSCopying>
+ (MTLAccelerationStructurePassDescriptor*)accelerationStructurePassDescriptor;
@end

@protocol MTLAccelerationStructureCommandEncoder <MTLCommandEncoder>
- (void)updateFence:(id<MTLFence>)fence;
- (void)waitForFence:(id<MTLFence>)fence;
- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage;
@end

NS_ASSUME_NONNULL_END
