// Metal.h: the part of Apple's Metal that the driver, the guard and the double use.
//
//   What       Names, signatures and values of Apple's headers, split into files as there; docs/metal-api.md
//              lists each with its documentation page and first macOS version. The bodies are the double's
//              (tests/metal_double/metal). On macOS Apple's own headers are found instead.
//   Threads    MTLDevice, MTLCommandQueue, resources, events and pipelines: any. Command buffers and
//              encoders: one thread at a time; the double aborts on two.
#pragma once

#import <Foundation/Foundation.h>
#import <dispatch/dispatch.h>

#import <Metal/MTLAccelerationStructureCommandEncoder.h>
#import <Metal/MTLBlitCommandEncoder.h>
#import <Metal/MTLBlitPass.h>
#import <Metal/MTLBuffer.h>
#import <Metal/MTLCaptureManager.h>
#import <Metal/MTLCommandBuffer.h>
#import <Metal/MTLCommandEncoder.h>
#import <Metal/MTLCommandQueue.h>
#import <Metal/MTLComputeCommandEncoder.h>
#import <Metal/MTLComputePass.h>
#import <Metal/MTLComputePipeline.h>
#import <Metal/MTLCounters.h>
#import <Metal/MTLDefines.h>
#import <Metal/MTLDevice.h>
#import <Metal/MTLEvent.h>
#import <Metal/MTLFence.h>
#import <Metal/MTLHeap.h>
#import <Metal/MTLLibrary.h>
#import <Metal/MTLParallelRenderCommandEncoder.h>
#import <Metal/MTLRenderCommandEncoder.h>
#import <Metal/MTLRenderPass.h>
#import <Metal/MTLResource.h>
#import <Metal/MTLResourceStateCommandEncoder.h>
#import <Metal/MTLResourceStatePass.h>
#import <Metal/MTLTypes.h>
