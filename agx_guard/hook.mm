#include "hook.h"

#include "buffers.h"
#include "counters.h"
#include "settings.h"

namespace agx_guard {

namespace {

void follow(id encoder, const std::shared_ptr<Buffer>& buffer) {
  const Class kind = object_getClass(encoder);
  if (!is_guarded(kind)) guard_class(kind, Kind::encoder);  // a class that was loaded since
  if (!track(encoder, buffer)) return;
  counters.encoders_made.add();
  if (buffer) keep_encoder(buffer, encoder);
}

bool is_in_dealloc_already(const Frame& frame) {
  for (const Frame* outer = frame.outer; outer; outer = outer->outer) {
    if (outer->self == frame.self && outer->original.call->role == frame.original.call->role) return true;
  }
  return false;
}

}  // namespace

Use::Use(const Frame& frame) : record_(nullptr) {
  if (!settings().order) return;
  record_ = lock_or_adopt(frame.self, frame.original.text.c_str());
  record_->calls.store(record_->calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

Use::~Use() {
  if (!record_) return;
  const bool gone =
      record_->encoder.load(std::memory_order_relaxed) == nullptr;  // released in its own method
  record_->lock.unlock();
  if (gone) recycle(*record_);
}

bool needs_no_carrying(const Original& original) {
  counters.late_calls.add();
  switch (original.call->role) {
    case Role::end:
    case Role::destroy:
    case Role::annotation:
      counters.late_nothing.add();
      return true;
    default:
      return false;
  }
}

void made_encoder(id buffer, id encoder) { follow(encoder, buffer_of(buffer)); }

void made_child(const Use& parent, id encoder) {
  counters.encoders_made_parallel.add();
  follow(encoder, parent.record() ? parent.record()->buffer : nullptr);
}

void made_buffer(id buffer) {
  counters.buffers_made.add();
  const Class kind = object_getClass(buffer);
  if (!is_guarded(kind)) guard_class(kind, Kind::buffer);
}

void about_to_commit(id buffer) {
  counters.buffers_committed.add();
  if (has_open_encoder(buffer)) counters.buffers_committed_open.add();
}

void note_event(Role role) {
  (role == Role::signal ? counters.events_signalled : counters.events_waited_for).add();
}

void deallocate(const Frame& frame, void (*original)(id, SEL), SEL selector) {
  if (is_in_dealloc_already(frame)) return original(frame.self, selector);
  if (frame.original.kind == Kind::buffer) {
    forget_buffer(frame.self);
    return original(frame.self, selector);
  }
  // Inside a call on the same encoder, this thread has the lock, and that call gives the record back.
  const bool locked_outside = frame.is_nested();
  Record* const record =
      locked_outside ? known_record(frame.self) : lock_record(frame.self, frame.original.text.c_str());
  if (record) {
    counters.encoders_released.add();
    close_carrier(*record);
    record->kept.clear();
    forget(*record);
  }
  original(frame.self, selector);
  if (record && !locked_outside) {
    record->lock.unlock();
    recycle(*record);
  }
}

}  // namespace agx_guard
