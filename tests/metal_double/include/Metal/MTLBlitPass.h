// MTLBlitPass.h: how a blit pass begins. The double reads nothing of it.
#pragma once

#import <Metal/MTLDefines.h>

NS_ASSUME_NONNULL_BEGIN

MTL_EXPORT @interface MTLBlitPassDescriptor : NSObject<NSCopying>
+ (MTLBlitPassDescriptor*)blitPassDescriptor;
@end

NS_ASSUME_NONNULL_END
