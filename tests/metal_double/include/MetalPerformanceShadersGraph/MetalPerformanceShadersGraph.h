// MetalPerformanceShadersGraph.h: all of MPSGraph that the driver and its probes use.
//
//   What       The folder's other headers; on macOS Apple's header of this name is found instead.
#pragma once

#import <MetalPerformanceShadersGraph/MPSGraph.h>
#import <MetalPerformanceShadersGraph/MPSGraphActivationOps.h>
#import <MetalPerformanceShadersGraph/MPSGraphArithmeticOps.h>
#import <MetalPerformanceShadersGraph/MPSGraphControlFlowOps.h>
#import <MetalPerformanceShadersGraph/MPSGraphConvolutionOps.h>
#import <MetalPerformanceShadersGraph/MPSGraphCumulativeOps.h>
#import <MetalPerformanceShadersGraph/MPSGraphGatherOps.h>
#import <MetalPerformanceShadersGraph/MPSGraphMatrixMultiplicationOps.h>
#import <MetalPerformanceShadersGraph/MPSGraphMemoryOps.h>
#import <MetalPerformanceShadersGraph/MPSGraphNormalizationOps.h>
#import <MetalPerformanceShadersGraph/MPSGraphPoolingOps.h>
#import <MetalPerformanceShadersGraph/MPSGraphReductionOps.h>
#import <MetalPerformanceShadersGraph/MPSGraphScatterNDOps.h>
#import <MetalPerformanceShadersGraph/MPSGraphSortOps.h>
#import <MetalPerformanceShadersGraph/MPSGraphTensorShapeOps.h>
#import <MetalPerformanceShadersGraph/MPSGraphTopKOps.h>
