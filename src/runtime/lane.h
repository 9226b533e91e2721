// lane.h: what a permit's owner runs with.
//
//   What       Permit number i owns lane i of its runtime: a stream for calls that have none, and on a
//              synchronous device a slot and a command list, which calls fill again and again.
//   Invariant  A lane is touched by the owner of its permit only, so nothing here is locked, and nobody else
//              submits to its stream; the governor's word passes it on.
//   Blocks     at(): makes the stream on first use, and again after it has failed.
#pragma once

#include <array>
#include <memory>

#include "runtime/admission/governor.h"
#include "runtime/memory/slot.h"
#include "runtime/streams/roster.h"

namespace heddle::runtime {

struct Lane {
  int index = 0;
  Ref<Stream> stream;
  std::unique_ptr<Slot> slot;  // null: none has been needed
  device::CommandList list;
};

class Lanes {
 public:
  explicit Lanes(Ref<Roster> roster) : roster_(std::move(roster)) {}
  Result<Lane*> at(const Permit& permit, bool needs_stream);

 private:
  struct alignas(64) Padded : Lane {};
  const Ref<Roster> roster_;
  std::array<Padded, Governor::kMaxLimit> lanes_;
};

}  // namespace heddle::runtime
