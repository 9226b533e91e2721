// MPSGraph.h: the graph that operators are added to, its tensors, and the executable it is compiled to.
//
//   What       Names and signatures of Apple's MPSGraph.h, MPSGraphCore.h, MPSGraphDevice.h,
//              MPSGraphTensor.h, MPSGraphTensorData.h and MPSGraphExecutable.h, as far as the driver uses
//              them; on macOS Apple's are found instead.
//   Threads    MPSGraph: one thread at a time while it is built. MPSGraphExecutable: any thread encodes it.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

NS_ASSUME_NONNULL_BEGIN

@class MPSGraph, MPSGraphTensor, MPSGraphTensorData, MPSGraphExecutable, MPSGraphDevice;

typedef NS_ENUM(uint64_t, MPSGraphOptions) {
  MPSGraphOptionsNone = 0L,
  MPSGraphOptionsSynchronizeResults = 1L,
  MPSGraphOptionsVerbose = 2L,
  MPSGraphOptionsDefault = MPSGraphOptionsSynchronizeResults,
};
typedef NS_ENUM(uint64_t, MPSGraphOptimization) {
  MPSGraphOptimizationLevel0 = 0L,
  MPSGraphOptimizationLevel1 = 1L,
};
typedef NS_ENUM(NSUInteger, MPSGraphTensorNamedDataLayout) {
  MPSGraphTensorNamedDataLayoutNCHW = 0L,
  MPSGraphTensorNamedDataLayoutNHWC = 1L,
  MPSGraphTensorNamedDataLayoutOIHW = 2L,
  MPSGraphTensorNamedDataLayoutHWIO = 3L,
  MPSGraphTensorNamedDataLayoutCHW = 4L,
  MPSGraphTensorNamedDataLayoutHWC = 5L,
  MPSGraphTensorNamedDataLayoutHW = 6L,
  MPSGraphTensorNamedDataLayoutNCDHW = 7L,
  MPSGraphTensorNamedDataLayoutNDHWC = 8L,
  MPSGraphTensorNamedDataLayoutOIDHW = 9L,
  MPSGraphTensorNamedDataLayoutDHWIO = 10L,
};
typedef NS_ENUM(NSUInteger, MPSGraphPaddingStyle) {
  MPSGraphPaddingStyleExplicit = 0L,
  MPSGraphPaddingStyleTF_VALID = 1L,
  MPSGraphPaddingStyleTF_SAME = 2L,
  MPSGraphPaddingStyleExplicitOffset = 3L,
  MPSGraphPaddingStyleONNX_SAME_LOWER = 4L,
};

@interface MPSGraphObject : NSObject
@end

@interface MPSGraphType : MPSGraphObject <NSCopying>
@end

@interface MPSGraphShapedType : MPSGraphType {
 @private
  MPSShape* _shape;
  MPSDataType _dataType;
}
@property(readwrite, copy, atomic, nullable) MPSShape* shape;
@property(readwrite, atomic) MPSDataType dataType;
- (instancetype)initWithShape:(nullable MPSShape*)shape dataType:(MPSDataType)dataType;
@end

@interface MPSGraphDevice : MPSGraphObject {
 @private
  id<MTLDevice> _metalDevice;
}
@property(readonly, nonatomic, nullable) id<MTLDevice> metalDevice;
+ (instancetype)deviceWithMTLDevice:(id<MTLDevice>)metalDevice;
@end

@interface MPSGraphTensor : MPSGraphObject <NSCopying> {
 @private
  MPSShape* _shape;
  MPSDataType _dataType;
  void* _recipe;  // the double's: how its value is computed
}
@property(readonly, copy, nonatomic, nullable) MPSShape* shape;
@property(readonly, nonatomic) MPSDataType dataType;
@end

// Named by compileWithDevice: only; the double makes none.
@interface MPSGraphOperation : MPSGraphObject <NSCopying>
@end

@interface MPSGraphTensorData : MPSGraphObject {
 @private
  id<MTLBuffer> _buffer;
  MPSShape* _shape;
  MPSDataType _dataType;
}
@property(readonly, copy, nonatomic) MPSShape* shape;
@property(readonly, nonatomic) MPSDataType dataType;
- (instancetype)initWithMTLBuffer:(id<MTLBuffer>)buffer shape:(MPSShape*)shape dataType:(MPSDataType)dataType;
@end

typedef NSDictionary<MPSGraphTensor*, MPSGraphShapedType*> MPSGraphTensorShapedTypeDictionary;

@interface MPSGraphCompilationDescriptor : MPSGraphObject <NSCopying> {
 @private
  MPSGraphOptimization _optimizationLevel;
  BOOL _waitForCompilationCompletion;
}
@property(readwrite, nonatomic) MPSGraphOptimization optimizationLevel;
@property(readwrite, nonatomic) BOOL waitForCompilationCompletion;
@end

typedef void (^MPSGraphExecutableCompletionHandler)(NSArray<MPSGraphTensorData*>* results,
                                                    NSError* _Nullable error);

@interface MPSGraphExecutableExecutionDescriptor : MPSGraphObject <NSCopying> {
 @private
  MPSGraphExecutableCompletionHandler _completionHandler;
  BOOL _waitUntilCompleted;
}
@property(readwrite, atomic, assign) MPSGraphExecutableCompletionHandler completionHandler;
@property(readwrite, atomic) BOOL waitUntilCompleted;
@end

@interface MPSGraphExecutable : MPSGraphObject {
 @private
  NSArray<MPSGraphTensor*>*_feedTensors, *_targetTensors;
  MPSGraphOptions _options;
  void* _compiled;  // the double's
}
@property(readwrite, atomic) MPSGraphOptions options;
@property(readonly, atomic, nullable) NSArray<MPSGraphTensor*>* feedTensors;
@property(readonly, atomic, nullable) NSArray<MPSGraphTensor*>* targetTensors;
- (NSArray<MPSGraphTensorData*>*)encodeToCommandBuffer:(MPSCommandBuffer*)commandBuffer
                                           inputsArray:(NSArray<MPSGraphTensorData*>*)inputsArray
                                          resultsArray:(nullable NSArray<MPSGraphTensorData*>*)resultsArray
                                   executionDescriptor:
                                       (nullable MPSGraphExecutableExecutionDescriptor*)executionDescriptor;
- (NSArray<MPSGraphTensorData*>*)
    runAsyncWithMTLCommandQueue:(id<MTLCommandQueue>)commandQueue
                    inputsArray:(NSArray<MPSGraphTensorData*>*)inputsArray
                   resultsArray:(nullable NSArray<MPSGraphTensorData*>*)resultsArray
            executionDescriptor:(nullable MPSGraphExecutableExecutionDescriptor*)executionDescriptor;
@end

@interface MPSGraph : MPSGraphObject {
 @private
  void* _building;  // the double's
  MPSGraphOptions _options;
}
@property(readwrite, atomic) MPSGraphOptions options;
+ (instancetype)new;
- (instancetype)init;
- (MPSGraphExecutable*)compileWithDevice:(nullable MPSGraphDevice*)device
                                   feeds:(MPSGraphTensorShapedTypeDictionary*)feeds
                           targetTensors:(NSArray<MPSGraphTensor*>*)targetTensors
                        targetOperations:(nullable NSArray<MPSGraphOperation*>*)targetOperations
                   compilationDescriptor:(nullable MPSGraphCompilationDescriptor*)compilationDescriptor;
@end

NS_ASSUME_NONNULL_END
