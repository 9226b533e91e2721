// MTLCaptureManager.h: GPU capture. The double supports no destination and says so through the error.
#pragma once

#import <Metal/MTLDefines.h>

NS_ASSUME_NONNULL_BEGIN

typedef NS_ENUM(NSInteger, MTLCaptureError) {
  MTLCaptureErrorNotSupported = 1,
  MTLCaptureErrorAlreadyCapturing = 2,
  MTLCaptureErrorInvalidDescriptor = 3,
};
MTL_EXTERN NSErrorDomain const MTLCaptureErrorDomain;

typedef NS_ENUM(NSInteger, MTLCaptureDestination) {
  MTLCaptureDestinationDeveloperTools = 1,
  MTLCaptureDestinationGPUTraceDocument = 2,
};

MTL_EXPORT @interface MTLCaptureDescriptor : NSObject<NSCopying> {
  id _captureObject;
  MTLCaptureDestination _destination;
  NSURL* _outputURL;
}
@property(nonatomic, strong, nullable) id captureObject;
@property(nonatomic) MTLCaptureDestination destination;
@property(nonatomic, copy, nullable) NSURL* outputURL;
@end

MTL_EXPORT @interface MTLCaptureManager : NSObject
+ (MTLCaptureManager*)sharedCaptureManager;
- (BOOL)supportsDestination:(MTLCaptureDestination)destination;
- (BOOL)startCaptureWithDescriptor:(MTLCaptureDescriptor*)descriptor
                             error:(NSError* _Nullable* _Nullable)error;
- (void)stopCapture;
@property(readonly) BOOL isCapturing;
@end

NS_ASSUME_NONNULL_END
