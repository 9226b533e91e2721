// MTLEvent.h: order across queues (MTLEvent), and with the CPU (MTLSharedEvent).
#pragma once

#import <Metal/MTLDefines.h>
#import <dispatch/dispatch.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLDevice
, MTLSharedEvent;

@protocol MTLEvent <NSObject>
@property(nullable, readonly) id<MTLDevice> device;
@property(nullable, copy, atomic) NSString* label;
@end

MTL_EXPORT @interface MTLSharedEventListener : NSObject { dispatch_queue_t _dispatchQueue; }
- (instancetype)init NS_DESIGNATED_INITIALIZER;
- (instancetype)initWithDispatchQueue:(dispatch_queue_t)dispatchQueue NS_DESIGNATED_INITIALIZER;
@property(readonly) dispatch_queue_t dispatchQueue;
@end

typedef void (^MTLSharedEventNotificationBlock)(id<MTLSharedEvent>, uint64_t value);

@protocol MTLSharedEvent <MTLEvent>
- (void)notifyListener:(MTLSharedEventListener*)listener
               atValue:(uint64_t)value
                 block:(MTLSharedEventNotificationBlock)block;
@property(readwrite) uint64_t signaledValue;
@end

NS_ASSUME_NONNULL_END
