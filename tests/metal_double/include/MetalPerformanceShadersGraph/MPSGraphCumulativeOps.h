// MPSGraphCumulativeOps.h: running sums and products.
//
//   What       Names and signatures of Apple's header of this name, as far as the driver uses them; on macOS
//              Apple's is found instead.
#pragma once

#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

@interface MPSGraph (MPSGraphCumulativeOps)
- (MPSGraphTensor*)cumulativeSumWithTensor:(MPSGraphTensor*)tensor
                                      axis:(NSInteger)axis
                                 exclusive:(BOOL)exclusive
                                   reverse:(BOOL)reverse
                                      name:(NSString* _Nullable)name;
- (MPSGraphTensor*)cumulativeProductWithTensor:(MPSGraphTensor*)tensor
                                          axis:(NSInteger)axis
                                     exclusive:(BOOL)exclusive
                                       reverse:(BOOL)reverse
                                          name:(NSString* _Nullable)name;
@end

NS_ASSUME_NONNULL_END
