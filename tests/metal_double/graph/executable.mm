// Compiled graphs: encoded into command buffers, run on the double's queues.
#include <cstring>

#include "base/atomic.h"
#include "base/yield.h"
#include "tests/metal_double/graph/building.h"
#include "tests/metal_double/graph/executable.h"
#include "tests/metal_double/graph/field_checks.h"
#include "tests/metal_double/graph/graph_faults.h"
#include "tests/metal_double/metal/command_buffer.h"
#include "tests/metal_double/metal/state.h"

namespace heddle::metal_double {

struct Compiled {
  Plan plan;
  std::vector<Value> feeds, targets;
  mutable Atomic<int> encoding{0};  // threads that encode it now
};

Arrays run_now(MPSGraphExecutable* executable, std::span<const Array> feeds) {
  const auto& compiled = *static_cast<const Compiled*>([executable compiled]);
  const InFlight here(compiled.plan);
  return compiled.plan.run(feeds);
}

namespace {

std::vector<id<MTLBuffer>> bind(NSArray<MPSGraphTensorData*>* data, const std::vector<Value>& types,
                                const char* what) {
  const char* method = "encodeToCommandBuffer:inputsArray:resultsArray:executionDescriptor:";
  if ([data count] != types.size())
    refuse(method, text(what, "s: ", [data count], " are given, ", types.size(), " are needed"));
  std::vector<id<MTLBuffer>> out;
  for (MPSGraphTensorData* one in data) {
    const Value& wanted = types[out.size()];
    const MPSDataType type = known([one dataType], method);
    const Shape shape = shape_from([one shape], method);
    if (type != wanted.type || shape != wanted.shape)
      refuse(method, text(what, " ", out.size(), " is ", shown(type), shown(shape), "; it was compiled as ",
                          shown(wanted.type), shown(wanted.shape)));
    out.push_back([one buffer]);
  }
  return out;
}

// Of one encoding: whether another thread was at the same executable.
class EncodedAlone {
 public:
  explicit EncodedAlone(const Compiled& compiled) : compiled_(compiled) {
    const bool second = compiled.encoding.add_acq_rel(1) > 0;
    arrive(Meeting::kEncode);
    if (!is_on(Fault::kExecutableNotReentrant)) return;
    broken_ = second;
    // Long enough for another to come: what is being shown is that none does.
    for (int i = 0; i < kWindow && !broken_; ++i) {
      give_way();
      broken_ = compiled.encoding.load_acquire() > 1;
    }
  }
  ~EncodedAlone() { compiled_.encoding.sub_acq_rel(1); }
  EncodedAlone(const EncodedAlone&) = delete;
  EncodedAlone& operator=(const EncodedAlone&) = delete;
  bool broken() const { return broken_; }

 private:
  static constexpr int kWindow = 50;
  const Compiled& compiled_;
  bool broken_ = false;
};

// One run, on the queue's thread; `memory` is that of the feeds, then of the targets.
PassResult execute(const Compiled& compiled, bool wrong, const PassBytes& memory) {
  if (take(Fault::kGraphRunError))
    return {MTLCommandBufferErrorInternal, @"Internal Error (0000000e:Internal Error)"};
  Arrays operands;
  for (size_t i = 0; i < compiled.feeds.size(); ++i) {
    const Value& feed = compiled.feeds[i];
    operands.push_back(Array::borrow(feed.type, feed.shape, memory[i].data()));
  }
  const Arrays results = compiled.plan.run(operands);
  for (size_t i = 0; i < results.size(); ++i) {
    const Array& result = results[i];
    std::byte* to = memory[compiled.feeds.size() + i].data();
    std::memcpy(to, result.data(), static_cast<size_t>(result.bytes()));
    if (wrong) to[result.bytes() - 1] ^= std::byte{0x15};
  }
  return {};
}

}  // namespace

MPSGraphExecutable* compile(MPSGraph* graph, MPSGraphDevice* device,
                            MPSGraphTensorShapedTypeDictionary* feeds,
                            NSArray<MPSGraphTensor*>* target_tensors) {
  arrive(Meeting::kCompile);
  Building b(graph, "compileWithDevice:feeds:targetTensors:targetOperations:compilationDescriptor:");
  b.require(device != nil, "without a device is not in the double yet");
  b.require([target_tensors count] > 0, "there are no targets");
  if (take(Fault::kGraphCompileFailure)) return nil;
  // The dictionary's order, turned round: no code may rely on the order in which tensors were fed.
  NSMutableArray<MPSGraphTensor*>* fed = [NSMutableArray array];
  NSArray<MPSGraphTensor*>* keys = [feeds allKeys];
  for (NSUInteger i = [keys count]; i-- > 0;) {
    MPSGraphTensor* key = [keys objectAtIndex:i];
    MPSGraphShapedType* type = [feeds objectForKey:key];
    b.require(shape_from([type shape], "compileWithDevice:") == [key value].shape &&
                  [type dataType] == [key dataType],
              "a feed's type is not its placeholder's");
    [fed addObject:key];
  }
  target_tensors = listed(target_tensors);
  std::vector<Value> sources = values_of(fed), targets = values_of(target_tensors);
  Result<Plan> plan = Plan::make(sources, targets);
  b.require(plan.ok(), plan.ok() ? "" : plan.status().message());
  auto* compiled = new Compiled{*std::move(plan), std::move(sources), std::move(targets)};
  return [MPSGraphExecutable executableWithFeeds:fed targets:target_tensors compiled:compiled];
}

}  // namespace heddle::metal_double

using heddle::metal_double::Building;
using heddle::metal_double::Compiled;
using heddle::metal_double::Value;

@implementation MPSGraphTensorData
@synthesize shape = _shape, dataType = _dataType;
- (instancetype)initWithMTLBuffer:(id<MTLBuffer>)buffer
                            shape:(MPSShape*)shape
                         dataType:(MPSDataType)dataType {
  if ((self = [super init])) {
    const char* method = "MPSGraphTensorData initWithMTLBuffer:shape:dataType:";
    const heddle::metal_double::Shape extents = heddle::metal_double::shape_from(shape, method);
    const int64_t bytes = heddle::metal_double::elements_of(extents) *
                          heddle::metal_double::size_of(heddle::metal_double::known(dataType, method));
    if (static_cast<int64_t>([buffer length]) < bytes)
      heddle::metal_double::refuse(method,
                                   heddle::text("the buffer has ", [buffer length], " bytes; ",
                                                heddle::metal_double::shown(extents), " takes ", bytes));
    _buffer = [buffer retain];
    _shape = [shape copy];
    _dataType = dataType;
  }
  return self;
}
- (id<MTLBuffer>)buffer {
  return _buffer;
}
- (void)dealloc {
  [_buffer release];
  [_shape release];
  [super dealloc];
}
@end

@implementation MPSGraphExecutableExecutionDescriptor
@synthesize completionHandler = _completionHandler, waitUntilCompleted = _waitUntilCompleted;
- (id)copyWithZone:(NSZone*)zone {
  return [self retain];
}
@end

@implementation MPSGraphExecutable
@synthesize options = _options, feedTensors = _feedTensors, targetTensors = _targetTensors;
+ (instancetype)executableWithFeeds:(NSArray<MPSGraphTensor*>*)feeds
                            targets:(NSArray<MPSGraphTensor*>*)targets
                           compiled:(Compiled*)compiled {
  MPSGraphExecutable* executable = [[[self alloc] init] autorelease];
  executable->_feedTensors = [feeds copy];
  executable->_targetTensors = [targets copy];
  executable->_compiled = compiled;
  executable->_options = MPSGraphOptionsDefault;
  return executable;
}
- (void*)compiled {
  return _compiled;
}
- (void)dealloc {
  delete static_cast<Compiled*>(_compiled);
  [_feedTensors release];
  [_targetTensors release];
  [super dealloc];
}

- (NSArray<MPSGraphTensorData*>*)encodeToCommandBuffer:(MPSCommandBuffer*)commandBuffer
                                           inputsArray:(NSArray<MPSGraphTensorData*>*)inputsArray
                                          resultsArray:(NSArray<MPSGraphTensorData*>*)resultsArray
                                   executionDescriptor:
                                       (MPSGraphExecutableExecutionDescriptor*)executionDescriptor {
  using namespace heddle::metal_double;
  if (resultsArray == nil) refuse("encodeToCommandBuffer:", "results of its own are not in the double yet");
  const auto& compiled = *static_cast<const Compiled*>(_compiled);
  const EncodedAlone alone(compiled);
  Pass pass;
  for (id<MTLBuffer> feed : bind(inputsArray, compiled.feeds, "input"))
    pass.accesses.push_back({feed, false});
  for (id<MTLBuffer> target : bind(resultsArray, compiled.targets, "result"))
    pass.accesses.push_back({target, true});
  // The work keeps the executable; the pass keeps the buffers.
  const std::shared_ptr<void> kept([self retain],
                                   [](void* executable) { [static_cast<id>(executable) release]; });
  const auto here = std::make_shared<const InFlight>(compiled.plan);
  const bool torn = alone.broken();
  pass.work = [kept, here, torn, &compiled](const PassBytes& memory) {
    return execute(compiled, here->wrong() || torn, memory);
  };
  const bool splits = is_on(Fault::kGraphSplits);
  if (splits) [commandBuffer commitAndContinue];
  append([commandBuffer rootCommandBuffer], std::move(pass));
  if (splits) [commandBuffer commitAndContinue];
  if (MPSGraphExecutableCompletionHandler handler = [executionDescriptor completionHandler]) {
    NSArray<MPSGraphTensorData*>* results = resultsArray;
    [[commandBuffer rootCommandBuffer] addCompletedHandler:^(id<MTLCommandBuffer> done) {
      handler(results, [done error]);
    }];
  }
  return resultsArray;
}

- (NSArray<MPSGraphTensorData*>*)runAsyncWithMTLCommandQueue:(id<MTLCommandQueue>)commandQueue
                                                 inputsArray:(NSArray<MPSGraphTensorData*>*)inputsArray
                                                resultsArray:(NSArray<MPSGraphTensorData*>*)resultsArray
                                         executionDescriptor:
                                             (MPSGraphExecutableExecutionDescriptor*)executionDescriptor {
  MPSCommandBuffer* buffer = [MPSCommandBuffer commandBufferFromCommandQueue:commandQueue];
  NSArray<MPSGraphTensorData*>* results = [self encodeToCommandBuffer:buffer
                                                          inputsArray:inputsArray
                                                         resultsArray:resultsArray
                                                  executionDescriptor:executionDescriptor];
  [[buffer rootCommandBuffer] commit];
  if ([executionDescriptor waitUntilCompleted]) [[buffer rootCommandBuffer] waitUntilCompleted];
  return results;
}
@end
