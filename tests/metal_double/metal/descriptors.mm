// descriptors.mm: the plain objects that describe what is to be made, and GPU capture, which the double has
// not.
#import <Metal/Metal.h>

NSErrorDomain const MTLCaptureErrorDomain = @"MTLCaptureErrorDomain";
MTLCommonCounterSet MTLCommonCounterSetTimestamp = @"timestamp";

@implementation MTLHeapDescriptor
@synthesize size = _size;
@synthesize cpuCacheMode = _cpuCacheMode;
@synthesize storageMode = _storageMode;
@synthesize hazardTrackingMode = _hazardTrackingMode;
@synthesize resourceOptions = _resourceOptions;
@synthesize type = _type;
- (instancetype)init {
  self = [super init];
  _storageMode = MTLStorageModePrivate;
  _hazardTrackingMode = MTLHazardTrackingModeUntracked;
  return self;
}
- (id)copyWithZone:(NSZone*)zone {
  (void)zone;
  MTLHeapDescriptor* const copy = [MTLHeapDescriptor new];
  copy.size = _size;
  copy.cpuCacheMode = _cpuCacheMode;
  copy.storageMode = _storageMode;
  copy.hazardTrackingMode = _hazardTrackingMode;
  copy.resourceOptions = _resourceOptions;
  copy.type = _type;
  return copy;
}
@end

@implementation MTLCommandBufferDescriptor
@synthesize retainedReferences = _retainedReferences;
@synthesize errorOptions = _errorOptions;
- (instancetype)init {
  self = [super init];
  _retainedReferences = YES;
  return self;
}
- (id)copyWithZone:(NSZone*)zone {
  (void)zone;
  MTLCommandBufferDescriptor* const copy = [MTLCommandBufferDescriptor new];
  copy.retainedReferences = _retainedReferences;
  copy.errorOptions = _errorOptions;
  return copy;
}
@end

@implementation MTLCompileOptions
@synthesize fastMathEnabled = _fastMathEnabled;
@synthesize languageVersion = _languageVersion;
@synthesize preprocessorMacros = _preprocessorMacros;
- (instancetype)init {
  self = [super init];
  _fastMathEnabled = YES;
  _languageVersion = MTLLanguageVersion3_1;
  return self;
}
- (id)copyWithZone:(NSZone*)zone {
  (void)zone;
  MTLCompileOptions* const copy = [MTLCompileOptions new];
  copy.fastMathEnabled = _fastMathEnabled;
  copy.languageVersion = _languageVersion;
  copy.preprocessorMacros = _preprocessorMacros;
  return copy;
}
- (void)dealloc {
  [_preprocessorMacros release];
  [super dealloc];
}
@end

@implementation MTLComputePassDescriptor
@synthesize dispatchType = _dispatchType;
+ (MTLComputePassDescriptor*)computePassDescriptor {
  return [[self new] autorelease];
}
- (id)copyWithZone:(NSZone*)zone {
  (void)zone;
  MTLComputePassDescriptor* const copy = [MTLComputePassDescriptor new];
  copy.dispatchType = _dispatchType;
  return copy;
}
@end

#define EMPTY_DESCRIPTOR(name, factory) \
  @implementation name                  \
  +(name*)factory {                     \
    return [[self new] autorelease];    \
  }                                     \
  -(id)copyWithZone : (NSZone*)zone {   \
    (void)zone;                         \
    return [name new];                  \
  }                                     \
  @end

EMPTY_DESCRIPTOR(MTLBlitPassDescriptor, blitPassDescriptor)
EMPTY_DESCRIPTOR(MTLRenderPassDescriptor, renderPassDescriptor)
EMPTY_DESCRIPTOR(MTLResourceStatePassDescriptor, resourceStatePassDescriptor)
EMPTY_DESCRIPTOR(MTLAccelerationStructurePassDescriptor, accelerationStructurePassDescriptor)

@implementation MTLCaptureDescriptor
@synthesize captureObject = _captureObject;
@synthesize destination = _destination;
@synthesize outputURL = _outputURL;
- (id)copyWithZone:(NSZone*)zone {
  (void)zone;
  MTLCaptureDescriptor* const copy = [MTLCaptureDescriptor new];
  copy.captureObject = _captureObject;
  copy.destination = _destination;
  copy.outputURL = _outputURL;
  return copy;
}
- (void)dealloc {
  [_captureObject release];
  [_outputURL release];
  [super dealloc];
}
@end

@implementation MTLCaptureManager
+ (MTLCaptureManager*)sharedCaptureManager {
  static MTLCaptureManager* const only = [MTLCaptureManager new];
  return only;
}
- (BOOL)supportsDestination:(MTLCaptureDestination)destination {
  (void)destination;
  return NO;
}
- (BOOL)startCaptureWithDescriptor:(MTLCaptureDescriptor*)descriptor error:(NSError**)error {
  (void)descriptor;
  if (error) {
    *error = [NSError errorWithDomain:MTLCaptureErrorDomain
                                 code:MTLCaptureErrorNotSupported
                             userInfo:@{NSLocalizedDescriptionKey : @"Capturing is not supported."}];
  }
  return NO;
}
- (void)stopCapture {
}
- (BOOL)isCapturing {
  return NO;
}
@end
