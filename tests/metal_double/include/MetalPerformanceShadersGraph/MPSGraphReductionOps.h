// MPSGraphReductionOps.h: one result from all elements along axes; the axes stay, with extent 1.
//
//   What       Names and signatures of Apple's header of this name, as far as the driver uses them; on macOS
//              Apple's is found instead.
#pragma once

#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

@interface MPSGraph (MPSGraphReductionOps)
- (MPSGraphTensor*)reductionSumWithTensor:(MPSGraphTensor*)tensor
                                     axes:(NSArray<NSNumber*>* _Nullable)axes
                                     name:(NSString* _Nullable)name;
- (MPSGraphTensor*)reductionMaximumWithTensor:(MPSGraphTensor*)tensor
                                         axes:(NSArray<NSNumber*>* _Nullable)axes
                                         name:(NSString* _Nullable)name;
- (MPSGraphTensor*)reductionMinimumWithTensor:(MPSGraphTensor*)tensor
                                         axes:(NSArray<NSNumber*>* _Nullable)axes
                                         name:(NSString* _Nullable)name;
- (MPSGraphTensor*)reductionMaximumPropagateNaNWithTensor:(MPSGraphTensor*)tensor
                                                     axes:(NSArray<NSNumber*>* _Nullable)axes
                                                     name:(NSString* _Nullable)name;
- (MPSGraphTensor*)reductionMinimumPropagateNaNWithTensor:(MPSGraphTensor*)tensor
                                                     axes:(NSArray<NSNumber*>* _Nullable)axes
                                                     name:(NSString* _Nullable)name;
- (MPSGraphTensor*)reductionProductWithTensor:(MPSGraphTensor*)tensor
                                         axes:(NSArray<NSNumber*>* _Nullable)axes
                                         name:(NSString* _Nullable)name;
- (MPSGraphTensor*)reductionArgMaximumWithTensor:(MPSGraphTensor*)tensor
                                            axis:(NSInteger)axis
                                            name:(NSString* _Nullable)name;
@end

NS_ASSUME_NONNULL_END
