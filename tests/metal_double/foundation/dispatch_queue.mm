// dispatch_queue.mm: serial queues.
//
//   Threads   A queue starts one worker at its first dispatch_async. The worker is the last owner of the
//             queue's state and ends when the queue object has died and its items have run: there is nobody
//             to join it, as with libdispatch's own threads.
//   Ordering  Items run one at a time in the order in which they came; a dispatch_sync waits for its turn
//             and then runs on its caller's thread.
#import <dispatch/dispatch.h>

#include <pthread.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace {

struct Item {
  dispatch_block_t block = nil;
  dispatch_queue_t queue = nil;  // held until the item has run; nil for an item of dispatch_sync
};

struct Specific {
  void* value = nullptr;
  dispatch_function_t destructor = nullptr;
};

struct QueueState {
  std::mutex lock;
  std::condition_variable changed;
  std::deque<Item*> items;
  std::map<const void*, Specific> specifics;
  std::string label;
  bool busy = false;
  bool abandoned = false;  // the queue object is gone
  bool has_worker = false;
};

thread_local dispatch_queue_t current_queue;

}  // namespace

@interface HeddleQueue : NSObject <OS_dispatch_queue> {
 @public
  std::shared_ptr<QueueState> _state;
}
@end

@implementation HeddleQueue
- (void)dealloc {
  for (const auto& [key, specific] : _state->specifics) {
    if (specific.destructor) specific.destructor(specific.value);
  }
  {
    const std::lock_guard lock(_state->lock);
    _state->abandoned = true;
  }
  _state->changed.notify_all();
  [super dealloc];
}
@end

namespace {

QueueState& state_of(dispatch_queue_t queue) { return *((HeddleQueue*)queue)->_state; }

void run(Item* item) {
  current_queue = item->queue;
  @autoreleasepool {
    item->block();
  }
  Block_release(item->block);
  current_queue = nil;
}

void work(QueueState& state) {
  std::unique_lock lock(state.lock);
  for (;;) {
    state.changed.wait(lock, [&] {
      const bool mine = !state.busy && !state.items.empty() && state.items.front()->queue;
      return mine || (state.abandoned && state.items.empty());
    });
    if (state.items.empty()) return;
    const std::unique_ptr<Item> item(state.items.front());
    state.items.pop_front();
    state.busy = true;
    lock.unlock();
    run(item.get());
    lock.lock();
    state.busy = false;
    state.changed.notify_all();
    lock.unlock();
    [item->queue release];  // may be the queue's end
    lock.lock();
  }
}

void* work_until_abandoned(void* given) {
  const std::unique_ptr<std::shared_ptr<QueueState>> state(static_cast<std::shared_ptr<QueueState>*>(given));
  work(**state);
  return nullptr;
}

void start_worker(const std::shared_ptr<QueueState>& state) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t worker;
  if (pthread_create(&worker, &attributes, work_until_abandoned, new std::shared_ptr<QueueState>(state)))
    abort();
  pthread_attr_destroy(&attributes);
}

// Makes the queue the caller's for a scope, an exception's way out included.
class QueueAccess {
 public:
  explicit QueueAccess(dispatch_queue_t queue) : state_(state_of(queue)), outer_(current_queue) {
    Item me;
    std::unique_lock lock(state_.lock);
    state_.items.push_back(&me);
    state_.changed.wait(lock, [&] { return !state_.busy && state_.items.front() == &me; });
    state_.items.pop_front();
    state_.busy = true;
    current_queue = queue;
  }
  ~QueueAccess() {
    current_queue = outer_;
    {
      const std::lock_guard lock(state_.lock);
      state_.busy = false;
    }
    state_.changed.notify_all();
  }

 private:
  QueueState& state_;
  dispatch_queue_t outer_;
};

}  // namespace

dispatch_queue_t dispatch_queue_create(const char* label, dispatch_queue_attr_t) {
  HeddleQueue* const made = [HeddleQueue new];
  made->_state = std::make_shared<QueueState>();
  made->_state->label = label ? label : "";
  return made;
}

const char* dispatch_queue_get_label(dispatch_queue_t queue) { return state_of(queue).label.c_str(); }

void dispatch_queue_set_specific(dispatch_queue_t queue, const void* key, void* value,
                                 dispatch_function_t destructor) {
  QueueState& state = state_of(queue);
  const std::lock_guard lock(state.lock);
  state.specifics[key] = {value, destructor};
}

void* dispatch_get_specific(const void* key) {
  if (!current_queue) return nullptr;
  QueueState& state = state_of(current_queue);
  const std::lock_guard lock(state.lock);
  const auto found = state.specifics.find(key);
  return found == state.specifics.end() ? nullptr : found->second.value;
}

void dispatch_async(dispatch_queue_t queue, dispatch_block_t block) {
  const std::shared_ptr<QueueState> state = ((HeddleQueue*)queue)->_state;
  auto* const item = new Item{Block_copy(block), [queue retain]};
  const std::lock_guard lock(state->lock);
  state->items.push_back(item);
  if (!state->has_worker) {
    state->has_worker = true;
    start_worker(state);
  }
  state->changed.notify_all();
}

void dispatch_sync(dispatch_queue_t queue, NS_NOESCAPE dispatch_block_t block) {
  if (current_queue == queue) {
    fprintf(stderr,
            "BUG IN CLIENT OF LIBDISPATCH: dispatch_sync called on queue already owned by current thread\n");
    abort();
  }
  const QueueAccess access(queue);
  block();
}

void dispatch_async_f(dispatch_queue_t queue, void* context, dispatch_function_t function) {
  dispatch_async(queue, ^{
    function(context);
  });
}
void dispatch_sync_f(dispatch_queue_t queue, void* context, dispatch_function_t function) {
  dispatch_sync(queue, ^{
    function(context);
  });
}

void dispatch_retain(dispatch_object_t object) { [object retain]; }
void dispatch_release(dispatch_object_t object) { [object release]; }
