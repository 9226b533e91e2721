// lane.h: what a permit's owner runs with: a stream of the lane's own and a slot.
//
//   What       Permit number i owns lane i of its runtime. A call without a stream runs on the lane's stream;
//              a call on a user's stream runs there, with the lane's slot.
//   Invariant  A lane is touched by the owner of its permit only, so nothing here is locked; the governor's
//              word passes it on.
//   Blocks     at(): makes slot and stream on first use, the stream again after it has failed.
#pragma once

#include <array>
#include <memory>

#include "runtime/admission/governor.h"
#include "runtime/streams/roster.h"

namespace heddle::runtime {

struct Lane {
  int index = 0;
  Ref<Stream> stream;
  std::unique_ptr<device::Slot> slot;
};

class Lanes {
 public:
  Lanes(Ref<device::Device> device, Ref<Roster> roster)
      : device_(std::move(device)), roster_(std::move(roster)) {}
  Result<Lane*> at(const Permit& permit, bool needs_stream);

 private:
  struct alignas(64) Padded : Lane {};
  const Ref<device::Device> device_;  // outlives the slots
  const Ref<Roster> roster_;
  std::array<Padded, Governor::kMaxLimit> lanes_;
};

}  // namespace heddle::runtime
