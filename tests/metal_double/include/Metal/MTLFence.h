// MTLFence.h: orders encoders of one queue that touch untracked resources.
#pragma once

#import <Metal/MTLDefines.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice;

@protocol MTLFence <NSObject>
@property(readonly) id<MTLDevice> device;
@property(nullable, copy, atomic) NSString* label;
@end

NS_ASSUME_NONNULL_END
