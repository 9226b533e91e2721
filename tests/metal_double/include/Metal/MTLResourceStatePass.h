// MTLResourceStatePass.h: how a resource state pass begins. The double reads nothing of it.
#pragma once

#import <Metal/MTLDefines.h>

NS_ASSUME_NONNULL_BEGIN

MTL_EXPORT @interface MTLResourceStatePassDescriptor : NSObject<NSCopying>
+ (MTLResourceStatePassDescriptor*)resourceStatePassDescriptor;
@end

NS_ASSUME_NONNULL_END
