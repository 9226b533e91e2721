// MTLResourceStateCommandEncoder.h: maps sparse resources. The double maps nothing; it keeps the encoder's
// rules.
#pragma once

#import <Metal/MTLCommandEncoder.h>
#import <Metal/MTLFence.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLResourceStateCommandEncoder <MTLCommandEncoder>
- (void)updateFence:(id<MTLFence>)fence;
- (void)waitForFence:(id<MTLFence>)fence;
@end

NS_ASSUME_NONNULL_END
