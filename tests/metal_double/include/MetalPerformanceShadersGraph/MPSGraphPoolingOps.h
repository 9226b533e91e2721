// MPSGraphPoolingOps.h: windows over up to four axes.
//
//   What       Names and signatures of Apple's header of this name, as far as the driver uses them; on macOS
//              Apple's is found instead.
#pragma once

#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

@interface MPSGraphPooling4DOpDescriptor : MPSGraphObject <NSCopying> {
 @private
  NSArray<NSNumber*>*_kernelSizes, *_strides, *_dilationRates, *_paddingValues;
  MPSGraphPaddingStyle _paddingStyle;
  BOOL _ceilMode, _includeZeroPadToAverage;
}
@property(readwrite, nonatomic, copy) NSArray<NSNumber*>* kernelSizes;
@property(readwrite, nonatomic, copy) NSArray<NSNumber*>* strides;
@property(readwrite, nonatomic, copy) NSArray<NSNumber*>* dilationRates;
@property(readwrite, nonatomic, copy) NSArray<NSNumber*>* paddingValues;  // 8: before and after each axis
@property(readwrite, nonatomic) MPSGraphPaddingStyle paddingStyle;
@property(readwrite, nonatomic) BOOL ceilMode;
@property(readwrite, nonatomic) BOOL includeZeroPadToAverage;
+ (nullable instancetype)descriptorWithKernelSizes:(NSArray<NSNumber*>*)kernelSizes
                                           strides:(NSArray<NSNumber*>*)strides
                                     dilationRates:(NSArray<NSNumber*>*)dilationRates
                                     paddingValues:(NSArray<NSNumber*>*)paddingValues
                                      paddingStyle:(MPSGraphPaddingStyle)paddingStyle;
@end

@interface MPSGraph (MPSGraphPoolingOps)
- (MPSGraphTensor*)maxPooling4DWithSourceTensor:(MPSGraphTensor*)source
                                     descriptor:(MPSGraphPooling4DOpDescriptor*)descriptor
                                           name:(NSString* _Nullable)name;
- (MPSGraphTensor*)avgPooling4DWithSourceTensor:(MPSGraphTensor*)source
                                     descriptor:(MPSGraphPooling4DOpDescriptor*)descriptor
                                           name:(NSString* _Nullable)name;
@end

NS_ASSUME_NONNULL_END
