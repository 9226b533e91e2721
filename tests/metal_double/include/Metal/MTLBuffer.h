// MTLBuffer.h: bytes that the GPU reads and writes.
#pragma once

#import <Metal/MTLResource.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLBuffer <MTLResource>
- (void*)contents NS_RETURNS_INNER_POINTER;
- (void)didModifyRange:(NSRange)range;
@property(readonly) NSUInteger length;
@property(readonly) uint64_t gpuAddress;
@end

NS_ASSUME_NONNULL_END
