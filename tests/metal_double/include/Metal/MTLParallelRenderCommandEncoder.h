// MTLParallelRenderCommandEncoder.h: one render pass encoded by several threads, each with an encoder of its
// own.
#pragma once

#import <Metal/MTLRenderCommandEncoder.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLParallelRenderCommandEncoder <MTLCommandEncoder>
- (nullable id<MTLRenderCommandEncoder>)renderCommandEncoder;
@end

NS_ASSUME_NONNULL_END
