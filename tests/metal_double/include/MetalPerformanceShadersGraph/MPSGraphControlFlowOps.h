// MPSGraphControlFlowOps.h: graphs inside a graph.
//
//   What       Names and signatures of Apple's header of this name, as far as the driver uses them; on macOS
//              Apple's is found instead.
#pragma once

#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

typedef NSArray<MPSGraphTensor*>* _Nonnull (^MPSGraphForLoopBodyBlock)(
    MPSGraphTensor* _Nonnull index, NSArray<MPSGraphTensor*>* _Nonnull iterationArguments);

@interface MPSGraph (MPSGraphControlFlowOps)
- (NSArray<MPSGraphTensor*>*)forLoopWithNumberOfIterations:(MPSGraphTensor*)numberOfIterations
                                      initialBodyArguments:(NSArray<MPSGraphTensor*>*)initialBodyArguments
                                                      body:(MPSGraphForLoopBodyBlock)body
                                                      name:(NSString* _Nullable)name;
@end

NS_ASSUME_NONNULL_END
