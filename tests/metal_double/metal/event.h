// event.h: events, what listens to them, and what a wait learns from them; fences.
//
//   Ordering  A wait for value v learns what every signal up to the first one of at least v knew
//             (drivers/sim/hazards.h). A thread that reads a value, waits for it or is notified of it has
//             seen those, too.
//   Blocks    wait_on_gpu(), until the value is signalled, the device is removed or stuck kernels are ended.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#import "objects.h"
#include "state.h"

namespace heddle::metal_double {

struct Listening {
  MTLSharedEventListener* listener;
  MTLSharedEventNotificationBlock block;
};

struct EventState {
  std::mutex lock;
  std::condition_variable signalled;
  uint64_t value = 0;
  Knowledge floor;                        // of signals older than those kept
  std::map<uint64_t, Knowledge> signals;  // by value
  std::multimap<uint64_t, Listening> listening;
};

}  // namespace heddle::metal_double

@interface DoubleEvent : DoubleObject <MTLEvent> {
 @public
  heddle::metal_double::EventState _state;
  id<MTLDevice> _device;
}
@end

@interface DoubleSharedEvent : DoubleEvent <MTLSharedEvent>
@end

@interface DoubleFence : DoubleObject <MTLFence> {
 @public
  id<MTLDevice> _device;
  std::mutex _lock;
  heddle::metal_double::Knowledge _known;
}
@end

namespace heddle::metal_double {

void signal(DoubleEvent* event, uint64_t value, const Knowledge& known);
// False when the device was removed meanwhile.
bool wait_on_gpu(DoubleEvent* event, uint64_t value, Knowledge* learned);

}  // namespace heddle::metal_double
