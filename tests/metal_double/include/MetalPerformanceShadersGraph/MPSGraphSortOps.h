// MPSGraphSortOps.h: order along an axis.
//
//   What       Names and signatures of Apple's header of this name, as far as the driver uses them; on macOS
//              Apple's is found instead.
#pragma once

#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

@interface MPSGraph (MPSGraphSortOps)
- (MPSGraphTensor*)argSortWithTensor:(MPSGraphTensor*)tensor
                                axis:(NSInteger)axis
                          descending:(BOOL)descending
                                name:(NSString* _Nullable)name;
@end

NS_ASSUME_NONNULL_END
