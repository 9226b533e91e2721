// MTLComputePipeline.h: a kernel ready to run.
#pragma once

#import <Metal/MTLLibrary.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLComputePipelineState <NSObject>
@property(nullable, readonly) NSString* label;
@property(readonly) id<MTLDevice> device;
@property(readonly) NSUInteger maxTotalThreadsPerThreadgroup;
@property(readonly) NSUInteger threadExecutionWidth;
@property(readonly) NSUInteger staticThreadgroupMemoryLength;
@end

NS_ASSUME_NONNULL_END
