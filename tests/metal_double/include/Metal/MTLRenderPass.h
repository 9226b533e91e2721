// MTLRenderPass.h: how a render pass begins. The double reads nothing of it.
#pragma once

#import <Metal/MTLDefines.h>

NS_ASSUME_NONNULL_BEGIN

MTL_EXPORT @interface MTLRenderPassDescriptor : NSObject<NSCopying>
+ (MTLRenderPassDescriptor*)renderPassDescriptor;
@end

NS_ASSUME_NONNULL_END
