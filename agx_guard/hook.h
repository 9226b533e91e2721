// hook.h: what a guarded method leads to: the guard's part around the original.
//
//   Encoders  lock, original, unlock; after the end: carry.h. Nested calls on the same encoder by the same
//             thread, and calls that the guard makes itself, go straight to the original.
//   Others    the original first or last, and a note of what happened. No lock is held meanwhile.
#pragma once

#include "buffers.h"
#include "carry.h"
#include "frames.h"
#include "records.h"

#include <type_traits>

namespace agx_guard {

// A call on an encoder, in its turn.
class Use {
 public:
  explicit Use(const Frame& frame);
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  bool is_late() const { return record_ && record_->ended.load(std::memory_order_relaxed); }
  Record* record() const { return record_; }

  template <class... A>
  void note(const Selector& call, A... arguments) const {
    if (!record_) return;
    if (call.role == Role::setting) {
      if (record_->carries) record_->kept.keep(call, arguments...);
    } else if (call.uses_settings) {
      record_->kept.worked();
    } else if (call.role == Role::end || call.role == Role::destroy) {
      record_->ended.store(true, std::memory_order_relaxed);
    }
  }

 private:
  Record* record_;  // null when the guard runs without its locks
};

// A late call that encodes nothing; false when it does.
bool needs_no_carrying(const Original& original);

// Of a command buffer: what it made is guarded, tracked and kept.
void made_encoder(id buffer, id encoder);
void made_child(const Use& parent, id encoder);
void made_buffer(id buffer);
void about_to_commit(id buffer);
void note_event(Role role);
void deallocate(const Frame& frame, void (*original)(id, SEL), SEL selector);

template <class R, class... A>
R call_buffer_or_queue(const Frame& frame, R (*original)(id, SEL, A...), SEL selector, A... arguments) {
  const Role role = frame.original.call->role;
  if constexpr (std::is_same_v<R, id>) {
    const id made = original(frame.self, selector, arguments...);
    if (!made) return made;
    if (role == Role::make_encoder) made_encoder(frame.self, made);
    if (role == Role::make_buffer) made_buffer(made);
    return made;
  } else {
    if (role == Role::commit) about_to_commit(frame.self);
    if (role == Role::signal || role == Role::wait) note_event(role);
    if constexpr (std::is_void_v<R>) {
      original(frame.self, selector, arguments...);
      if (role == Role::commit) committed(frame.self);
    } else {
      return original(frame.self, selector, arguments...);
    }
  }
}

template <class R, class... A>
R hook(id self, SEL selector, A... arguments) {
  Thread& thread = this_thread;
  const Frame frame(thread, self, resolve(thread, self, selector));
  const auto original = reinterpret_cast<R (*)(id, SEL, A...)>(frame.original.implementation);
  const Role role = frame.original.call->role;
  if constexpr (std::is_void_v<R> && sizeof...(A) == 0) {
    if (role == Role::dealloc || role == Role::buffer_dealloc) return deallocate(frame, original, selector);
  }
  if (thread.inside || frame.is_nested()) return original(self, selector, arguments...);
  if (frame.original.kind != Kind::encoder)
    return call_buffer_or_queue(frame, original, selector, arguments...);
  const Use use(frame);
  if constexpr (std::is_void_v<R>) {
    if (use.is_late()) [[unlikely]] {
      if (needs_no_carrying(frame.original)) return;
      return carry(*use.record(), frame.original, selector, arguments...);
    }
    use.note(*frame.original.call, arguments...);
  }
  if constexpr (std::is_same_v<R, id>) {
    const id made = original(self, selector, arguments...);
    if (made && role == Role::make_child) made_child(use, made);
    return made;
  } else {
    return original(self, selector, arguments...);
  }
}

}  // namespace agx_guard
