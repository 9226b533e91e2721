// MPSGraphScatterNDOps.h: elements put where indices say.
//
//   What       Names and signatures of Apple's header of this name, as far as the driver uses them; on macOS
//              Apple's is found instead.
#pragma once

#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

typedef NS_ENUM(NSInteger, MPSGraphScatterMode) {
  MPSGraphScatterModeAdd = 0L,
  MPSGraphScatterModeSub = 1L,
  MPSGraphScatterModeMul = 2L,
  MPSGraphScatterModeDiv = 3L,
  MPSGraphScatterModeMin = 4L,
  MPSGraphScatterModeMax = 5L,
  MPSGraphScatterModeSet = 6L,
};

@interface MPSGraph (MPSGraphScatterNDOps)
- (MPSGraphTensor*)scatterNDWithDataTensor:(MPSGraphTensor*)dataTensor
                             updatesTensor:(MPSGraphTensor*)updatesTensor
                             indicesTensor:(MPSGraphTensor*)indicesTensor
                           batchDimensions:(NSUInteger)batchDimensions
                                      mode:(MPSGraphScatterMode)mode
                                      name:(NSString* _Nullable)name;
- (MPSGraphTensor*)scatterAlongAxis:(NSInteger)axis
                     withDataTensor:(MPSGraphTensor*)dataTensor
                      updatesTensor:(MPSGraphTensor*)updatesTensor
                      indicesTensor:(MPSGraphTensor*)indicesTensor
                               mode:(MPSGraphScatterMode)mode
                               name:(NSString* _Nullable)name;
@end

NS_ASSUME_NONNULL_END
