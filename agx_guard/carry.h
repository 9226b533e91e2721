// carry.h: calls that come after their encoder has ended, encoded elsewhere instead of crashing or being
// dropped.
//
//   How       A new encoder of the same kind on a new command buffer of the same queue gets the ended one's
//             state, then the call. Work ends it, and its buffer is committed behind the ended encoder's: at
//             once when that has been committed, else right after it. So the work runs after all that was
//             encoded before it.
//   Refused   with NSInternalInconsistencyException: kinds whose state lives in a pass (render), encoders
//             made before the guard was installed, settings that cannot be kept (arrays of objects), and work
//             whose settings have been let go with a completed buffer.
//   Threads   belongs to the holder of the encoder's lock.
#pragma once

#include "frames.h"
#include "records.h"

namespace agx_guard {

struct Carrier {
  id<NSObject> buffer;   // retained
  id<NSObject> encoder;  // retained
};

// Whether there is a way to make another encoder of this kind with nothing but a command buffer.
bool can_carry(id encoder);

// The encoder that late calls on the record's go to, with its state set; raises when the call cannot be
// carried.
id open_carrier(Record& record, const Original& original);

// After work: ends it and sends it off.
void send_carrier(Record& record);

// Ends it and lets it go: what is in it is state without work.
void close_carrier(Record& record);

template <class... A>
void carry(Record& record, const Original& original, SEL selector, A... arguments) {
  @autoreleasepool {
    const Inside own;
    const id carrier = open_carrier(record, original);
    if (original.call->role == Role::setting) record.kept.keep(*original.call, arguments...);
    const IMP implementation = class_getMethodImplementation(object_getClass(carrier), selector);
    reinterpret_cast<void (*)(id, SEL, A...)>(implementation)(carrier, selector, arguments...);
    if (original.call->role == Role::work) send_carrier(record);
  }
}

}  // namespace agx_guard
