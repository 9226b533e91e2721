// MPSGraphTopKOps.h: the greatest along the last axis.
//
//   What       Names and signatures of Apple's header of this name, as far as a probe uses them; on macOS
//              Apple's is found instead.
#pragma once

#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

@interface MPSGraph (MPSGraphTopKOps)
- (NSArray<MPSGraphTensor*>*)topKWithSourceTensor:(MPSGraphTensor*)source
                                                k:(NSUInteger)k
                                             name:(NSString* _Nullable)name;
@end

NS_ASSUME_NONNULL_END
