// Arrays, copies, executables and command buffers.
#include <algorithm>

#include "base/atomic.h"
#include "base/thread.h"
#include "limit_differences.h"
#include "limit_probes.h"
#include "limit_trial.h"

namespace heddle::limits {
namespace {

std::string many_elements(bool small) {
  const int64_t count = small ? 5000 : int64_t{1} << 31;
  Trial trial;
  MPSGraphTensor* x = trial.input<int8_t>({1}, [](int64_t) { return int8_t{-3}; });
  MPSGraphTensor* wide = [trial.graph() broadcastTensor:x toShape:numbers({count}) name:nil];
  MPSGraphTensor* y = [trial.graph() absoluteWithTensor:wide name:nil];
  return differs(trial.run<int8_t>(y, {count}), [](int64_t) { return 3; });
}

std::string large_intermediate(bool small) {
  const int64_t rows = small ? 129 : (1 << 15) + 1, columns = small ? 32 : 1 << 15;
  Trial trial;
  MPSGraphTensor* x = trial.input<float>({rows, 1}, [](int64_t i) { return static_cast<float>(i % 3); });
  MPSGraph* graph = trial.graph();
  MPSGraphTensor* wide = [graph broadcastTensor:x toShape:numbers({rows, columns}) name:nil];
  MPSGraphTensor* y = [graph reductionSumWithTensor:wide axes:@[ @1 ] name:nil];
  return differs(trial.run<float>(y, {rows, 1}), [&](int64_t i) { return i % 3 * columns; });
}

std::string many_axes(bool) {
  Shape shape(17, 1);
  shape.front() = shape.back() = 2;
  Trial trial;
  MPSGraphTensor* x = trial.input<float>(shape, [](int64_t i) { return static_cast<float>(i); });
  MPSGraphTensor* y = [trial.graph() negativeWithTensor:x name:nil];
  return differs(trial.run<float>(y, shape), [](int64_t i) { return -i; });
}

std::string large_copy(bool small) {
  const uint64_t bytes = small ? 256 : (uint64_t{1} << 32) + 256;
  Trial trial;
  @autoreleasepool {
    const id<MTLBuffer> from = trial.room(bytes), to = trial.room(bytes);
    const uint64_t seen[] = {0, bytes / 2, bytes - 1};
    for (const uint64_t at : seen) static_cast<uint8_t*>([from contents])[at] = 7;
    const id<MTLCommandBuffer> commands = [trial.queue() commandBuffer];
    const id<MTLBlitCommandEncoder> encoder = [commands blitCommandEncoder];
    [encoder copyFromBuffer:from sourceOffset:0 toBuffer:to destinationOffset:0 size:bytes];
    [encoder endEncoding];
    [commands commit];
    [commands waitUntilCompleted];
    uint8_t got[3] = {};
    for (int i = 0; i < 3; ++i) got[i] = static_cast<const uint8_t*>([to contents])[seen[i]];
    return differs<uint8_t>(got, [](int64_t) { return 7; });
  }
}

std::string order_of_results(bool) {
  Trial trial;
  MPSGraphTensor* x = trial.input<float>({2}, [](int64_t i) { return static_cast<float>(i + 1); });
  MPSGraphTensor* down = [trial.graph() negativeWithTensor:x name:nil];
  MPSGraphTensor* squares = [trial.graph() squareWithTensor:x name:nil];
  const auto got = trial.run<float>({squares, down}, {{2}, {2}});
  return differs(got[0], [](int64_t i) { return (i + 1) * (i + 1); });
}

std::string loop(bool scalar) {
  Trial trial;
  MPSGraph* graph = trial.graph();
  const int32_t three = 3;
  NSData* bytes = [NSData dataWithBytes:&three length:sizeof three];
  MPSGraphTensor* times = scalar ? [graph constantWithScalar:3 dataType:MPSDataTypeInt32]
                                 : [graph constantWithData:bytes shape:@[ @1 ] dataType:MPSDataTypeInt32];
  MPSGraphTensor* x = trial.input<float>({2}, [](int64_t i) { return static_cast<float>(i + 1); });
  MPSGraphTensor* y = [[graph forLoopWithNumberOfIterations:times
                                       initialBodyArguments:@[ x ]
                                                       body:^NSArray<MPSGraphTensor*>*(
                                                           MPSGraphTensor*, NSArray<MPSGraphTensor*>* in) {
                                                         MPSGraphTensor* one = [in objectAtIndex:0];
                                                         return @[ [graph additionWithPrimaryTensor:one
                                                                                    secondaryTensor:one
                                                                                               name:nil] ];
                                                       }
                                                       name:nil] objectAtIndex:0];
  return differs(trial.run<float>(y, {2}), [](int64_t i) { return 8 * (i + 1); });
}
std::string loop_of_scalar(bool) { return loop(true); }
std::string loop_of_vector(bool) { return loop(false); }

std::string same_command_buffer(bool) {
  Trial trial;
  @autoreleasepool {
    MPSGraphTensor* x = trial.input<float>({2}, [](int64_t i) { return static_cast<float>(i); });
    MPSGraphExecutable* executable = trial.compile({[trial.graph() negativeWithTensor:x name:nil]});
    const id<MTLCommandBuffer> made = [trial.queue() commandBuffer];
    MPSCommandBuffer* commands = [MPSCommandBuffer commandBufferWithCommandBuffer:made];
    MPSGraphTensorData* out = Trial::data(trial.room(8), {2}, MPSDataTypeFloat32);
    [executable encodeToCommandBuffer:commands
                          inputsArray:trial.feeds(executable)
                         resultsArray:@[ out ]
                  executionDescriptor:nil];
    const bool same = [commands rootCommandBuffer] == made;
    trial.commit(commands);
    return same ? "" : "the encoding went on with another command buffer";
  }
}

// Four threads encode one executable, with a queue and buffers of their own.
std::string encoded_by_threads(bool small) {
  const int times = small ? 20 : 500;
  Trial trial;
  const int64_t count = 256;
  MPSGraphTensor* x = trial.input<float>({count}, [](int64_t i) { return static_cast<float>(i); });
  MPSGraphExecutable* executable = [trial.compile({[trial.graph() squareWithTensor:x name:nil]}) retain];
  std::vector<id<MTLBuffer>> in, out;
  for (int thread = 0; thread < 4; ++thread) {
    in.push_back(trial.room(count * sizeof(float)));
    out.push_back(trial.room(count * sizeof(float)));
    for (int64_t i = 0; i < count; ++i)
      static_cast<float*>([in.back() contents])[i] = static_cast<float>(i + thread);
  }
  Atomic<int> wrong{0};
  run_together(4, [&](int thread) {
    @autoreleasepool {
      const id<MTLBuffer> from = in[static_cast<size_t>(thread)], to = out[static_cast<size_t>(thread)];
      const id<MTLCommandQueue> queue = [trial.device() newCommandQueue];
      for (int i = 0; i < times; ++i) {
        @autoreleasepool {
          std::fill_n(static_cast<float*>([to contents]), count, 0.0F);
          MPSCommandBuffer* commands = [MPSCommandBuffer commandBufferFromCommandQueue:queue];
          [executable encodeToCommandBuffer:commands
                                inputsArray:@[ Trial::data(from, {count}, MPSDataTypeFloat32) ]
                               resultsArray:@[ Trial::data(to, {count}, MPSDataTypeFloat32) ]
                        executionDescriptor:nil];
          trial.commit(commands);
          const auto* got = static_cast<const float*>([to contents]);
          for (int64_t k = 0; k < count; ++k) {
            const auto root = static_cast<float>(k + thread);
            if (got[k] != root * root) wrong.add_relaxed(1);
          }
        }
      }
      [queue release];
    }
  });
  [executable release];
  const int elements = wrong.load_acquire();
  return elements == 0 ? "" : std::to_string(elements) + " elements are wrong";
}

constexpr Probe kProbes[] = {
    {"array size", "2^31 elements of i8", many_elements},
    {"array size", "an intermediate above 2^32 bytes", large_intermediate},
    {"array axes", "17 axes", many_axes},
    {"blit size", "above 2^32 bytes", large_copy},
    {"order of results", "the second tensor first", order_of_results},
    {"loop scalars", "iterations without axes", loop_of_scalar},
    {"loop scalars", "iterations of one element", loop_of_vector},
    {"root command buffer", "after one encoding", same_command_buffer},
    {"executables in turn", "encoded by four threads at once", encoded_by_threads},
};

}  // namespace

std::span<const Probe> size_probes() { return kProbes; }

}  // namespace heddle::limits
