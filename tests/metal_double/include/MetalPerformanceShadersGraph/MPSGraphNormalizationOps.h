// MPSGraphNormalizationOps.h: mean, variance and what is scaled by them.
//
//   What       Names and signatures of Apple's header of this name, as far as the driver uses them; on macOS
//              Apple's is found instead.
#pragma once

#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

@interface MPSGraph (MPSGraphNormalizationOps)
- (MPSGraphTensor*)meanOfTensor:(MPSGraphTensor*)tensor
                           axes:(NSArray<NSNumber*>*)axes
                           name:(NSString* _Nullable)name;
- (MPSGraphTensor*)varianceOfTensor:(MPSGraphTensor*)tensor
                         meanTensor:(MPSGraphTensor*)meanTensor
                               axes:(NSArray<NSNumber*>*)axes
                               name:(NSString* _Nullable)name;
- (MPSGraphTensor*)normalizationWithTensor:(MPSGraphTensor*)tensor
                                meanTensor:(MPSGraphTensor*)mean
                            varianceTensor:(MPSGraphTensor*)variance
                               gammaTensor:(MPSGraphTensor* _Nullable)gamma
                                betaTensor:(MPSGraphTensor* _Nullable)beta
                                   epsilon:(float)epsilon
                                      name:(NSString* _Nullable)name;
@end

NS_ASSUME_NONNULL_END
