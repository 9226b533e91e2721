#include <algorithm>
#include <cstring>

#import "encoder.h"

using heddle::metal_double::Access;
using heddle::metal_double::Binding;
using heddle::metal_double::Dispatch;
using heddle::metal_double::kBufferSlots;
using heddle::metal_double::KernelArgument;
using heddle::metal_double::kSetBytesLimit;
using heddle::metal_double::PassBytes;
using heddle::metal_double::PassResult;
using heddle::metal_double::Size3;

namespace {

Size3 size3(MTLSize size) { return {size.width, size.height, size.depth}; }

void run_dispatch(Dispatch& dispatch, const PassBytes& bytes) {
  heddle::metal_double::KernelCall call = dispatch.call;
  for (size_t i = 0; i < kBufferSlots; ++i) {
    if (dispatch.accesses[i] >= 0) {
      const std::span<std::byte> one = bytes[static_cast<size_t>(dispatch.accesses[i])];
      call.arguments[i] = {one.data(), one.size()};
    } else if (!dispatch.bytes[i].empty()) {
      call.arguments[i] = {dispatch.bytes[i].data(), dispatch.bytes[i].size()};
    }
  }
  heddle::metal_double::add(heddle::metal_double::Count::kKernels);
  dispatch.kernel(call);
}

bool conflict(const Access& a, const Access& b) {
  if (a.buffer != b.buffer || !(a.writes || b.writes)) return false;
  const auto end = [](const Access& access) {
    return access.range.length == NSUIntegerMax ? NSUIntegerMax : NSMaxRange(access.range);
  };
  return a.range.location < end(b) && b.range.location < end(a);
}

}  // namespace

@implementation DoubleComputeEncoder

- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  METAL_ENCODES;
  DoublePipeline* const before = _pipeline;
  _pipeline = [static_cast<DoublePipeline*>(state) retain];
  [before release];
}
- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
  METAL_ENCODES;
  METAL_ASSERT(length <= kSetBytesLimit, "length(%lu) must be <= %zu", length, kSetBytesLimit);
  METAL_ASSERT(index < kBufferSlots, "buffer binding index (%lu) must be < %zu", index, kBufferSlots);
  Binding& binding = _bindings[index];
  [binding.buffer release];
  binding = {};
  const auto* const first = static_cast<const std::byte*>(bytes);
  binding.bytes.assign(first, first + length);
  binding.set = true;
}
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  METAL_ENCODES;
  METAL_ASSERT(index < kBufferSlots, "buffer binding index (%lu) must be < %zu", index, kBufferSlots);
  METAL_ASSERT(!buffer || offset < [buffer length], "offset(%lu) must be < [buffer length](%lu)", offset,
               [buffer length]);
  Binding& binding = _bindings[index];
  DoubleBuffer* const before = binding.buffer;
  binding = {};
  binding.buffer = [static_cast<DoubleBuffer*>(buffer) retain];
  binding.offset = offset;
  binding.set = buffer != nil;
  [before release];
}
- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index {
  METAL_ENCODES;
  METAL_ASSERT(index < kBufferSlots && _bindings[index].buffer, "no buffer is set at index %lu", index);
  METAL_ASSERT(offset < [_bindings[index].buffer length], "offset(%lu) must be < [buffer length](%lu)",
               offset, [_bindings[index].buffer length]);
  _bindings[index].offset = offset;
}
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
  (void)index;
  METAL_ENCODES;
  METAL_ASSERT(length % 16 == 0, "length(%lu) must be a multiple of 16 bytes.", length);
}

- (void)add:(const KernelArgument&)argument to:(Dispatch*)dispatch for:(SEL)method {
  const Binding& binding = _bindings[argument.index];
  if (!binding.set) {
    heddle::metal_double::fail(self, method,
                               "Compute Function(%s): missing Buffer binding at index %zu for %s[0].",
                               [_pipeline->_name UTF8String], argument.index, argument.name.c_str());
  }
  if (!binding.buffer) {
    dispatch->bytes[argument.index] = binding.bytes;
    return;
  }
  const NSRange range = {binding.offset, [binding.buffer length] - binding.offset};
  dispatch->accesses[argument.index] = static_cast<int>(_pass.accesses.size());
  _pass.accesses.push_back({binding.buffer, argument.writes, range});
}

- (void)requireNoConflictSinceBarrier:(size_t)first_of_dispatch for:(SEL)method {
  if (!_concurrent) return;
  for (size_t earlier = _first_since_barrier; earlier < first_of_dispatch; ++earlier) {
    for (size_t now = first_of_dispatch; now < _pass.accesses.size(); ++now) {
      if (!conflict(_pass.accesses[earlier], _pass.accesses[now])) continue;
      heddle::metal_double::fail(
          self, method,
          "hazard: two concurrent dispatches use the same bytes and one writes, with no "
          "memory barrier between them");
    }
  }
}

- (void)dispatch:(MTLSize)grid group:(MTLSize)group for:(SEL)method {
  if (!_pipeline) {
    heddle::metal_double::fail(self, method, "No compute pipeline state set");
  }
  const NSUInteger threads = group.width * group.height * group.depth;
  const NSUInteger limit = [_pipeline maxTotalThreadsPerThreadgroup];
  if (threads == 0 || threads > limit) {
    heddle::metal_double::fail(self, method,
                               "(threadsPerThreadgroup.width(%lu) * threadsPerThreadgroup.height(%lu) * "
                               "threadsPerThreadgroup.depth(%lu))(%lu) must be > 0 and <= %lu. (device "
                               "threadgroup size limit)",
                               group.width, group.height, group.depth, threads, limit);
  }
  Dispatch one{_pipeline->_kernel, {}, {}, {}};
  one.accesses.fill(-1);
  one.call.grid = size3(grid);
  one.call.threads_per_group = size3(group);
  const size_t first = _pass.accesses.size();
  for (const KernelArgument& argument : _pipeline->_arguments) [self add:argument to:&one for:method];
  [self requireNoConflictSinceBarrier:first for:method];
  _dispatches.push_back(std::move(one));
}
- (void)dispatchThreads:(MTLSize)threadsPerGrid threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup {
  METAL_ENCODES;
  [self dispatch:threadsPerGrid group:threadsPerThreadgroup for:_cmd];
}
- (void)dispatchThreadgroups:(MTLSize)threadgroupsPerGrid
       threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup {
  METAL_ENCODES;
  const MTLSize& n = threadgroupsPerGrid;
  const MTLSize& t = threadsPerThreadgroup;
  [self dispatch:MTLSizeMake(n.width * t.width, n.height * t.height, n.depth * t.depth) group:t for:_cmd];
}
- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage {
  METAL_ENCODES;
  DoubleBuffer* const buffer = static_cast<DoubleBuffer*>(resource);
  _pass.accesses.push_back({buffer, (usage & MTLResourceUsageWrite) != 0, {0, [buffer length]}});
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
  METAL_ENCODES;
  if (scope & MTLBarrierScopeBuffers) _first_since_barrier = _pass.accesses.size();
}

- (void)finishPass {
  _pass.kind = heddle::metal_double::PassKind::kCompute;
  _pass.work = [dispatches = std::move(_dispatches)](const PassBytes& bytes) mutable {
    for (Dispatch& dispatch : dispatches) run_dispatch(dispatch, bytes);
    return PassResult{};
  };
}

- (void)dealloc {
  [_pipeline release];
  for (Binding& binding : _bindings) [binding.buffer release];
  [super dealloc];
}

@end
