// MPSGraphActivationOps.h: activation functions.
//
//   What       Names and signatures of Apple's header of this name, as far as the driver uses them; on macOS
//              Apple's is found instead.
#pragma once

#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

@interface MPSGraph (MPSGraphActivationOps)
- (MPSGraphTensor *)reLUWithTensor:(MPSGraphTensor *)tensor name:(NSString *_Nullable)name;
- (MPSGraphTensor *)sigmoidWithTensor:(MPSGraphTensor *)tensor name:(NSString *_Nullable)name;
- (MPSGraphTensor *)softMaxWithTensor:(MPSGraphTensor *)tensor axis:(NSInteger)axis
    name:(NSString *_Nullable)name;
- (MPSGraphTensor *)leakyReLUWithTensor:(MPSGraphTensor *)tensor alpha:(double)alpha
    name:(NSString *_Nullable)name;
@end

NS_ASSUME_NONNULL_END
