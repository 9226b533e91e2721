// MPSGraphControlFlowOps.h: graphs inside a graph.
//
//   What       Names and signatures of Apple's header of this name, as far as the driver uses them; on macOS
//              Apple's is found instead.
#pragma once

#import <MetalPerformanceShadersGraph/MPSGraph.h>

NS_ASSUME_NONNULL_BEGIN

typedef NSArray<MPSGraphTensor *> *_Nonnull (^MPSGraphIfThenElseBlock)(void);
typedef MPSGraphTensor *_Nonnull (^MPSGraphWhileBeforeBlock)(
    NSArray<MPSGraphTensor *> *_Nonnull inputTensors,
    NSMutableArray<MPSGraphTensor *> *_Nonnull resultTensors);
typedef NSArray<MPSGraphTensor *> *_Nonnull (^MPSGraphWhileAfterBlock)(
    NSArray<MPSGraphTensor *> *_Nonnull bodyBlockArguments);
typedef NSArray<MPSGraphTensor *> *_Nonnull (^MPSGraphForLoopBodyBlock)(
    MPSGraphTensor *_Nonnull index, NSArray<MPSGraphTensor *> *_Nonnull iterationArguments);

@interface MPSGraph (MPSGraphControlFlowOps)
- (NSArray<MPSGraphTensor *> *)ifWithPredicateTensor:(MPSGraphTensor *)predicateTensor
    thenBlock:(MPSGraphIfThenElseBlock)thenBlock elseBlock:(MPSGraphIfThenElseBlock _Nullable)elseBlock
    name:(NSString *_Nullable)name;
- (NSArray<MPSGraphTensor *> *)whileWithInitialInputs:(NSArray<MPSGraphTensor *> *)initialInputs
    before:(MPSGraphWhileBeforeBlock)before after:(MPSGraphWhileAfterBlock)after
    name:(NSString *_Nullable)name;
- (NSArray<MPSGraphTensor *> *)forLoopWithNumberOfIterations:(MPSGraphTensor *)numberOfIterations
    initialBodyArguments:(NSArray<MPSGraphTensor *> *)initialBodyArguments
    body:(MPSGraphForLoopBodyBlock)body name:(NSString *_Nullable)name;
@end

NS_ASSUME_NONNULL_END
