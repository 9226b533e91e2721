// executable.h: an executable's numbers without a device.
//
//   What       run_now() does on the caller's thread what an encoded run does on a queue.
//   Threads    Any.
#pragma once

#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>

#include <span>

#include "tests/metal_double/graph/recipe.h"

namespace heddle::metal_double {
struct Compiled;
MPSGraphExecutable* compile(MPSGraph* graph, MPSGraphDevice* device,
                            MPSGraphTensorShapedTypeDictionary* feeds,
                            NSArray<MPSGraphTensor*>* target_tensors);
Arrays run_now(MPSGraphExecutable* executable, std::span<const Array> feeds);
}  // namespace heddle::metal_double

@interface MPSGraphTensorData (HeddleDouble)
- (id<MTLBuffer>)buffer;
@end

@interface MPSGraphExecutable (HeddleDouble)
+ (instancetype)executableWithFeeds:(NSArray<MPSGraphTensor*>*)feeds
                            targets:(NSArray<MPSGraphTensor*>*)targets
                           compiled:(heddle::metal_double::Compiled*)compiled;
- (void*)compiled;
@end
