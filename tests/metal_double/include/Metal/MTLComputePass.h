// MTLComputePass.h: how a compute pass begins.
#pragma once

#import <Metal/MTLCommandBuffer.h>

NS_ASSUME_NONNULL_BEGIN

MTL_EXPORT @interface MTLComputePassDescriptor : NSObject<NSCopying> { MTLDispatchType _dispatchType; }
+ (MTLComputePassDescriptor*)computePassDescriptor;
@property(nonatomic) MTLDispatchType dispatchType;
@end

NS_ASSUME_NONNULL_END
