// library.h: libraries, functions and pipelines. `kernel void NAME(...)` of an MSL source is looked up in
// the kernels that tests registered (control.h).
#pragma once

#include <vector>

#include "kernel_source.h"
#import "objects.h"

@interface DoubleLibrary : DoubleObject <MTLLibrary> {
 @public
  id<MTLDevice> _device;
  std::vector<heddle::metal_double::KernelSource> _kernels;
}
@end

@interface DoubleFunction : DoubleObject <MTLFunction> {
 @public
  id<MTLDevice> _device;
  heddle::metal_double::KernelSource _source;
}
@end

@interface DoublePipeline : DoubleObject <MTLComputePipelineState> {
 @public
  id<MTLDevice> _device;
  NSString* _name;
  heddle::metal_double::Kernel _kernel;
  std::vector<heddle::metal_double::KernelArgument> _arguments;
}
@end
