// MPSGraphActivationOps.h: activation functions.
//
//   What       Names and signatures of Apple's header of this name, as far as the driver uses them; on macOS
//              Apple's is found instead.
#pragma once

#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

@interface MPSGraph (MPSGraphActivationOps)
- (MPSGraphTensor*)sigmoidWithTensor:(MPSGraphTensor*)tensor name:(NSString* _Nullable)name;
- (MPSGraphTensor*)softMaxWithTensor:(MPSGraphTensor*)tensor
                                axis:(NSInteger)axis
                                name:(NSString* _Nullable)name;
@end

NS_ASSUME_NONNULL_END
