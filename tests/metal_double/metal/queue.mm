#import "queue.h"

#import "command_buffer_object.h"

namespace heddle::metal_double {
namespace {

QueueNumber next_number() {
  static std::atomic<QueueNumber> last{0};
  return ++last;
}

}  // namespace

QueueState::QueueState()
    : number(next_number()),
      scheduled_as(next_queue()),
      schedule(make_schedule(2 * scheduled_as)),
      handler_schedule(make_schedule(2 * scheduled_as + 1)) {}

namespace {

// Gives the GPU's thread every buffer whose turn has come.
void pump(DoubleCommandQueue* queue) {
  QueueState& state = queue->_state;
  const std::lock_guard lock(state.lock);
  while (!state.order.empty() && state.order.front().committed) {
    DoubleCommandBuffer* const buffer = state.order.front().buffer;
    state.order.pop_front();
    dispatch_async(queue->_gpu, ^{
      run(buffer);
    });
    [buffer release];  // the block holds it
  }
}

}  // namespace

void enqueue(DoubleCommandQueue* queue, DoubleCommandBuffer* buffer) {
  const std::lock_guard lock(queue->_state.lock);
  queue->_state.order.push_back({[buffer retain], false});
}

void commit(DoubleCommandQueue* queue, DoubleCommandBuffer* buffer) {
  {
    QueueState& state = queue->_state;
    const std::lock_guard lock(state.lock);
    auto at = state.order.begin();
    while (at != state.order.end() && at->buffer != buffer) ++at;
    if (at == state.order.end()) at = state.order.insert(at, {[buffer retain], false});
    at->committed = true;
    buffer->_state.turn = ++state.commits;
  }
  queue->_state.handlers_changed.notify_all();
  pump(queue);
}

void close_slot(DoubleCommandQueue* queue) {
  {
    const std::lock_guard lock(queue->_state.lock);
    --queue->_state.open;
  }
  queue->_state.slot_free.notify_one();
}

namespace {

void open_slot(QueueState& state) {
  std::unique_lock lock(state.lock);
  if (state.open >= state.limit) add(Count::kQueueWaits);
  state.slot_free.wait(lock, [&] { return state.open < state.limit; });
  ++state.open;
}

}  // namespace
}  // namespace heddle::metal_double

@implementation DoubleCommandQueue

- (instancetype)initWithDevice:(id<MTLDevice>)device limit:(NSUInteger)limit {
  self = [super init];
  METAL_ASSERT(limit > 0, "maxCommandBufferCount must be > 0");
  _state.limit = limit;
  _device = [device retain];
  _gpu = dispatch_queue_create("com.Metal.CommandQueueDispatch", DISPATCH_QUEUE_SERIAL);
  _handlers = dispatch_queue_create("com.Metal.CompletionQueueDispatch", DISPATCH_QUEUE_SERIAL);
  return self;
}
- (id<MTLDevice>)device {
  return _device;
}

- (DoubleCommandBuffer*)bufferRetaining:(BOOL)retains options:(MTLCommandBufferErrorOption)options {
  if (heddle::metal_double::is_on(heddle::metal_double::Fault::kNoCommandBuffer)) return nil;
  heddle::metal_double::open_slot(_state);
  DoubleCommandBuffer* const made = [DoubleCommandBuffer new];
  made->_queue = [self retain];
  made->_state.retains = retains;
  made->_errorOptions = options;
  return [made autorelease];
}
- (id<MTLCommandBuffer>)commandBuffer {
  return [self bufferRetaining:YES options:MTLCommandBufferErrorOptionNone];
}
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  return [self bufferRetaining:NO options:MTLCommandBufferErrorOptionNone];
}
- (id<MTLCommandBuffer>)commandBufferWithDescriptor:(MTLCommandBufferDescriptor*)descriptor {
  return [self bufferRetaining:descriptor.retainedReferences options:descriptor.errorOptions];
}

- (void)dealloc {
  heddle::metal_double::retire(_state.number);
  for (const auto& waiting : _state.order) [waiting.buffer release];
  dispatch_release(_gpu);
  dispatch_release(_handlers);
  [_device release];
  [super dealloc];
}

@end
