// execution.mm: what the GPU's thread does with a command buffer, and what follows its completion.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#import "command_buffer_object.h"

namespace heddle::metal_double {
namespace {

constexpr std::byte kRecycled{0xDB};
constexpr auto kHandlerPatience = std::chrono::milliseconds(20);
constexpr auto kHandlerLag = std::chrono::milliseconds(5);

struct Failure {
  MTLCommandBufferError code = MTLCommandBufferErrorNone;
  NSString* text = nil;
};

CFTimeInterval now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void set_status(DoubleCommandBuffer* buffer, MTLCommandBufferStatus status) {
  {
    const std::lock_guard lock(buffer->_state.lock);
    buffer->_state.status = status;
  }
  buffer->_state.changed.notify_all();
}

[[noreturn]] void hazard(DoubleCommandBuffer* buffer, const HeldAccess& access, const std::string& pair) {
  fprintf(stderr,
          "-[DoubleCommandBuffer commit]: failed assertion `hazard: bytes [%lu, %lu) of %s buffer %s (%p) "
          "are %s, "
          "with no fence, event or completion between them (command buffer %p, label %s)'\n",
          access.bytes.begin, access.bytes.end, access.storage->tracked() ? "tracked" : "untracked",
          access.retained && access.retained.label ? [access.retained.label UTF8String] : "<none>",
          static_cast<void*>(access.storage->data), pair.c_str(), static_cast<void*>(buffer),
          buffer.label ? [buffer.label UTF8String] : "<none>");
  abort();
}

// Under Fault::kStridedCopyReadsUnfinished: keeps what a writing pass found, for a copy that comes too early.
void remember_before_write(Storage& storage, Position position) {
  if (storage.last_write.queue == position.queue && storage.last_write.pass == position.pass) return;
  storage.before_last_write.assign(storage.data, storage.data + storage.size);
  storage.last_write = position;
}

// The bytes that a pass works on: the buffer's, or what a fault puts in their place. Lives while the pass
// runs.
class PassMemory {
 public:
  PassMemory(const EncodedPass& pass, const Knowledge& host_at_commit) {
    copies_.reserve(pass.accesses.size());
    for (const HeldAccess& access : pass.accesses) {
      std::byte* base = access.storage->data;
      if (pass.kind == PassKind::kStridedCopy && !access.writes) base = source(access, host_at_commit, base);
      bytes_.emplace_back(base + access.bytes.begin, access.bytes.end - access.bytes.begin);
    }
  }
  const PassBytes& bytes() const { return bytes_; }

 private:
  std::byte* source(const HeldAccess& access, const Knowledge& host_at_commit, std::byte* real) {
    Storage& storage = *access.storage;
    if (is_on(Fault::kStridedCopyDropsSource) && storage.dropped) {
      return copies_.emplace_back(storage.size, kRecycled).data();
    }
    if (!is_on(Fault::kStridedCopyReadsUnfinished)) return real;
    const std::lock_guard lock(storage.lock);
    // Work that the host saw end before it committed this has surely ended for the copy, too.
    const Position last = storage.last_write;
    if (storage.before_last_write.empty() || host_at_commit.covers(last) || retired().contains(last.queue))
      return real;
    return copies_.emplace_back(storage.before_last_write).data();
  }

  PassBytes bytes_;
  std::vector<std::vector<std::byte>> copies_;
};

class Execution {
 public:
  explicit Execution(DoubleCommandBuffer* buffer) : buffer_(buffer), queue_(buffer->_queue->_state) {
    queue_.known.forget(retired());
    queue_.known.learn(buffer->_state.host_at_commit);
  }

  Failure run() {
    for (Operation& operation : buffer_->_state.operations) {
      if (is_on(Fault::kDeviceRemoved)) return removed();
      auto* const pass = std::get_if<EncodedPass>(&operation);
      const Failure failure = pass ? run_pass(*pass) : run_event(std::get<EventUse>(operation));
      if (failure.code) return failure;
    }
    return injected();
  }

  // All that is over when the last pass that ran is.
  Knowledge finished() const {
    Knowledge known = queue_.known;
    known.learn_all_up_to({queue_.number, queue_.passes});
    return known;
  }

 private:
  static Failure removed() {
    return {MTLCommandBufferErrorDeviceRemoved, @"The device was removed (0000000b:DeviceRemoved)"};
  }

  // A failing buffer does its passes and fails before anyone is told that they are done.
  static Failure injected() {
    if (is_on(Fault::kDeviceRemoved)) return removed();
    if (take(Fault::kCommandBufferOutOfMemory)) {
      return {MTLCommandBufferErrorOutOfMemory,
              @"Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"};
    }
    if (take(Fault::kCommandBufferError)) {
      return {MTLCommandBufferErrorInternal, @"Internal Error (0000000e:Internal Error)"};
    }
    return {};
  }

  Failure run_event(const EventUse& use) {
    if (!use.signal) return wait_on_gpu(use.event, use.value, &queue_.known) ? Failure{} : removed();
    const Failure failure = injected();
    if (!failure.code) signal(use.event, use.value, finished());
    return failure;
  }

  Failure run_pass(EncodedPass& pass) {
    hold(queue_.schedule);
    add(Count::kPasses);
    const Position position{queue_.number, ++queue_.passes};
    Knowledge known = queue_.known;
    for (const FenceUse& use : pass.fences) {
      if (use.update) continue;
      const std::lock_guard lock(use.fence->_lock);
      known.learn(use.fence->_known);
    }
    for (HeldAccess& access : pass.accesses) record(access, position, &known);
    if (take(Fault::kKernelNeverEnds)) {
      stuck_kernel();
      return {MTLCommandBufferErrorTimeout,
              @"Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)"};
    }
    const PassTime time;
    const PassMemory memory(pass, buffer_->_state.host_at_commit);
    if (pass.kind == PassKind::kGraph) arrive(Meeting::kRun);
    const PassResult result = pass.work ? pass.work(memory.bytes()) : PassResult{};
    time.end_pass();
    known.learn_only(position);
    for (const FenceUse& use : pass.fences) {
      if (!use.update) continue;
      const std::lock_guard lock(use.fence->_lock);
      use.fence->_known.learn(known);
    }
    return {result.code, result.text};
  }

  void record(HeldAccess& access, Position position, Knowledge* known) {
    Storage& storage = *access.storage;
    const std::lock_guard lock(storage.lock);
    const sim::Access now{access.bytes, access.writes, position};
    if (const auto earlier = storage.log.record(now, storage.tracked(), known, retired()))
      hazard(buffer_, access, describe(*earlier, now));
    if (access.writes && is_on(Fault::kStridedCopyReadsUnfinished)) remember_before_write(storage, position);
  }

  DoubleCommandBuffer* buffer_;
  QueueState& queue_;
};

void call(DoubleCommandBuffer* buffer, std::vector<MTLCommandBufferHandler>* handlers) {
  for (MTLCommandBufferHandler const handler : *handlers) {
    handler(buffer);
    Block_release(handler);
    add(Count::kHandlers);
  }
  handlers->clear();
}

// Under Fault::kHandlersOutOfOrder: waits for the handlers of the buffer that was committed next, if one is
// committed soon.
void let_next_go_first(const DoubleCommandBuffer* buffer) {
  QueueState& queue = buffer->_queue->_state;
  const uint64_t next = buffer->_state.turn + 1;
  std::unique_lock lock(queue.lock);
  if (!queue.handlers_changed.wait_for(lock, kHandlerLag, [&] { return queue.commits >= next; })) return;
  queue.handlers_changed.wait(lock, [&] { return queue.handled.contains(next); });
}

void note_handled(const DoubleCommandBuffer* buffer) {
  QueueState& queue = buffer->_queue->_state;
  const uint64_t turn = buffer->_state.turn;
  {
    const std::lock_guard lock(queue.lock);
    queue.handled.insert(turn);
    if (queue.handled.contains(turn + 1)) add(Count::kHandlersLate);
    add(Count::kSettled);
    while (*queue.handled.begin() + 2 * queue.limit < turn) queue.handled.erase(queue.handled.begin());
  }
  queue.handlers_changed.notify_all();
}

// apart: beside other buffers' handlers of the queue, whose schedule is its handlers' thread's alone.
void run_handlers(DoubleCommandBuffer* buffer, bool apart) {
  CommandBufferState& state = buffer->_state;
  if (is_on(Fault::kHandlerAfterWait)) {
    std::unique_lock lock(state.lock);
    state.changed.wait_for(lock, kHandlerPatience, [&] { return state.waiter_returned; });
    state.changed.wait_for(lock, kHandlerLag, [] { return false; });
  }
  if (apart) {
    let_next_go_first(buffer);
  } else {
    hold(buffer->_queue->_state.handler_schedule);
  }
  call(buffer, &state.completed_handlers);
  note_handled(buffer);
  {
    const std::lock_guard lock(state.lock);
    state.handlers_over = true;
  }
  state.changed.notify_all();
}

void finish(DoubleCommandBuffer* buffer, const Failure& failure) {
  CommandBufferState& state = buffer->_state;
  {
    const std::lock_guard lock(state.lock);
    state.gpu_end = now();
    if (failure.code) {
      state.error = [[NSError errorWithDomain:MTLCommandBufferErrorDomain
                                         code:static_cast<NSInteger>(failure.code)
                                     userInfo:@{NSLocalizedDescriptionKey : failure.text}] retain];
    }
    state.status = failure.code ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted;
    state.holds_slot = false;
  }
  state.changed.notify_all();
  add(Count::kCompletions);
  if (failure.code) add(Count::kErrors);
  close_slot(buffer->_queue);
  const bool apart = is_on(Fault::kHandlersOutOfOrder);  // on a thread of its own
  dispatch_queue_t const handlers =
      apart ? dispatch_queue_create("handlers", DISPATCH_QUEUE_SERIAL) : buffer->_queue->_handlers;
  dispatch_async(handlers, ^{
    run_handlers(buffer, apart);
  });
  if (apart) dispatch_release(handlers);
}

std::atomic<int> g_running{0};

}  // namespace

void drop_operations(DoubleCommandBuffer* buffer) {
  for (Operation& operation : buffer->_state.operations) {
    if (auto* use = std::get_if<EventUse>(&operation)) {
      [use->event release];
      continue;
    }
    auto& pass = std::get<EncodedPass>(operation);
    for (HeldAccess& access : pass.accesses) {
      [access.retained release];
      if (!buffer->_state.retains) --access.storage->unretained_uses;
    }
    for (FenceUse& use : pass.fences) [use.fence release];
  }
  buffer->_state.operations.clear();
}

void run(DoubleCommandBuffer* buffer) {
  CommandBufferState& state = buffer->_state;
  set_status(buffer, MTLCommandBufferStatusScheduled);
  if (!state.scheduled_handlers.empty()) {
    dispatch_async(buffer->_queue->_handlers, ^{
      call(buffer, &buffer->_state.scheduled_handlers);
    });
  }
  {
    const std::lock_guard lock(state.lock);
    state.kernel_start = state.kernel_end = state.gpu_start = now();
  }
  Execution execution(buffer);
  if (++g_running > 1) add(Count::kOverlaps);
  const Failure failure = execution.run();
  --g_running;
  // Before anyone can learn that it is over: what follows may rely on it.
  host_saw(execution.finished());
  drop_operations(buffer);
  finish(buffer, failure);
}

}  // namespace heddle::metal_double
