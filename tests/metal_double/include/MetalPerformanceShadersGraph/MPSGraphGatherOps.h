// MPSGraphGatherOps.h: elements picked by indices.
//
//   What       Names and signatures of Apple's header of this name, as far as the driver uses them; on macOS
//              Apple's is found instead.
#pragma once

#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

@interface MPSGraph (MPSGraphGatherOps)
- (MPSGraphTensor*)gatherNDWithUpdatesTensor:(MPSGraphTensor*)updatesTensor
                               indicesTensor:(MPSGraphTensor*)indicesTensor
                             batchDimensions:(NSUInteger)batchDimensions
                                        name:(NSString* _Nullable)name;
- (MPSGraphTensor*)gatherWithUpdatesTensor:(MPSGraphTensor*)updatesTensor
                             indicesTensor:(MPSGraphTensor*)indicesTensor
                                      axis:(NSUInteger)axis
                           batchDimensions:(NSUInteger)batchDimensions
                                      name:(NSString* _Nullable)name;
- (MPSGraphTensor*)gatherAlongAxis:(NSInteger)axis
                 withUpdatesTensor:(MPSGraphTensor*)updatesTensor
                     indicesTensor:(MPSGraphTensor*)indicesTensor
                              name:(NSString* _Nullable)name;
@end

NS_ASSUME_NONNULL_END
