#import "event.h"

#include "tests/metal_double/foundation/system_memory.h"

#include <chrono>
#include <vector>

namespace heddle::metal_double {
namespace {

constexpr size_t kSignalsKept = 16;
constexpr auto kRemovalCheck = std::chrono::milliseconds(20);

// What a wait for `value` learns. The event's lock is held.
void learn_signals(const EventState& state, uint64_t value, Knowledge* known) {
  known->learn(state.floor);
  for (const auto& [signalled, knowledge] : state.signals) {
    known->learn(knowledge);
    if (signalled >= value) return;
  }
}

void notify(DoubleSharedEvent* event, uint64_t value, const std::vector<Listening>& due) {
  for (const Listening& one : due) {
    MTLSharedEventNotificationBlock const block = one.block;
    dispatch_async([one.listener dispatchQueue], ^{
      block(event, value);
    });
    Block_release(block);
    [one.listener release];
  }
}

}  // namespace

void signal(DoubleEvent* event, uint64_t value, const Knowledge& known) {
  EventState& state = event->_state;
  std::vector<Listening> due;
  {
    const std::lock_guard lock(state.lock);
    state.value = value;
    state.signals[value].learn(known);
    if (state.signals.size() > kSignalsKept) {
      state.floor.learn(state.signals.begin()->second);
      state.signals.erase(state.signals.begin());
    }
    const auto end = state.listening.upper_bound(value);
    for (auto at = state.listening.begin(); at != end; ++at) due.push_back(at->second);
    state.listening.erase(state.listening.begin(), end);
  }
  state.signalled.notify_all();
  if (due.empty()) return;
  host_saw(known);
  notify(static_cast<DoubleSharedEvent*>(event), value, due);
}

bool wait_on_gpu(DoubleEvent* event, uint64_t value, Knowledge* learned) {
  EventState& state = event->_state;
  std::unique_lock lock(state.lock);
  while (!state.signalled.wait_for(lock, kRemovalCheck, [&] { return state.value >= value; })) {
    if (is_on(Fault::kDeviceRemoved)) return false;
  }
  learn_signals(state, value, learned);
  return true;
}

}  // namespace heddle::metal_double

using heddle::metal_double::EventState;
using heddle::metal_double::Knowledge;

@implementation DoubleEvent
- (id<MTLDevice>)device {
  return _device;
}
- (void)dealloc {
  for (const auto& [value, one] : _state.listening) {
    Block_release(one.block);
    [one.listener release];
  }
  [_device release];
  [super dealloc];
}
@end

@implementation DoubleSharedEvent

- (uint64_t)signaledValue {
  const heddle::foundation::SystemMemory memory;
  Knowledge seen;
  uint64_t value = 0;
  {
    const std::lock_guard lock(_state.lock);
    value = _state.value;
    heddle::metal_double::learn_signals(_state, value, &seen);
  }
  heddle::metal_double::host_saw(seen);
  return value;
}
- (void)setSignaledValue:(uint64_t)value {
  const heddle::foundation::SystemMemory memory;
  heddle::metal_double::signal(self, value, heddle::metal_double::host_knowledge());
}
- (void)notifyListener:(MTLSharedEventListener*)listener
               atValue:(uint64_t)value
                 block:(MTLSharedEventNotificationBlock)block {
  const heddle::foundation::SystemMemory memory;
  const heddle::metal_double::Listening one{[listener retain], Block_copy(block)};
  uint64_t now = 0;
  {
    const std::lock_guard lock(_state.lock);
    now = _state.value;
    if (now < value) {
      _state.listening.insert({value, one});
      return;
    }
  }
  heddle::metal_double::notify(self, now, {one});
}

@end

@implementation MTLSharedEventListener
- (instancetype)init {
  if ((self = [super init]))
    _dispatchQueue = dispatch_queue_create("MTLSharedEventListener", DISPATCH_QUEUE_SERIAL);
  return self;
}
- (instancetype)initWithDispatchQueue:(dispatch_queue_t)dispatchQueue {
  self = [super init];
  _dispatchQueue = [dispatchQueue retain];
  return self;
}
- (dispatch_queue_t)dispatchQueue {
  return _dispatchQueue;
}
- (void)dealloc {
  [_dispatchQueue release];
  [super dealloc];
}
@end

@implementation DoubleFence
- (id<MTLDevice>)device {
  return _device;
}
- (void)dealloc {
  [_device release];
  [super dealloc];
}
@end
