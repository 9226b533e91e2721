// lane.h: what a permit's owner runs with.
//
//   What       Permit number i owns lane i of its runtime: a stream for calls that have none, and on a
//              synchronous device a slot, a command list, which calls fill again and again, and the last
//              calls that ran here as prepared commands.
//   Invariant  A lane is touched by the owner of its permit only, so nothing here is locked, and nobody else
//              submits to its stream; the governor's word passes it on.
//   Programs   A lane keeps programs alive. When a program was dropped from the cache, or a model from the
//              runtime, drop_programs() empties the free lanes; the owner of another one does it after its
//              call.
//   Idle       drop_programs() and drop_idle_slots() have each free lane in turn. A caller that comes
//              meanwhile takes another one, or parks for that moment. One thread at a time does so: a lane
//              that it has would be passed by.
//   Blocks     at(): makes the stream on first use, and again after it has failed.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "runtime/admission/governor.h"
#include "runtime/memory/slot.h"
#include "runtime/streams/roster.h"

namespace heddle::runtime {

// A call whose command needs nothing any more but where its bytes lie.
struct PreparedCall {
  static constexpr int kTimed = 4;    // of its first runs are timed, since a look at the clock costs
  ModelId model = ModelId::kForeign;  // none
  device::CommandList list;           // one Run, whose views lack the memory
  std::vector<uint64_t> output_bytes;
  int timed = 0;
  Duration shortest = Duration::max();  // of those

  device::Run& run() { return std::get<device::Run>(*list.begin()); }
  bool is_long() const { return timed == kTimed && shortest >= std::chrono::microseconds(20); }
  // Long beside what Python does between operators; with shorter ones threads are in each other's way.
  bool leaves_its_slice() {
    return timed == kTimed && shortest >= std::chrono::microseconds(100) && run().program->keeps_to_a_core();
  }
  bool is_brief(Duration at_most) const { return timed == kTimed && shortest <= at_most; }
  bool is_for(ModelId asked, std::span<const device::View* const> inputs);
  // Runs what bound_to() gave.
  Status run_on(Stream& stream, const device::CommandList& bound);
  // The list for one run. It keeps nothing alive: all three outlive it.
  const device::CommandList& bound_to(std::span<const device::View* const> inputs,
                                      std::span<const device::View> outputs,
                                      const Ref<device::Buffer>& arena);
};

// The last calls that ran on a lane. A thread that runs operators one by one calls hundreds of models in
// turn.
class PreparedCalls {
 public:
  // Of contiguous inputs; null: there is none.
  PreparedCall* find(ModelId model, std::span<const device::View* const> inputs);
  PreparedCall& prepare(ModelId model, Ref<const device::Program> program,
                        std::span<const device::View* const> inputs);
  void clear() { sets_.clear(); }

 private:
  static constexpr size_t kSets = 64, kWays = 4;
  struct Set {
    std::array<PreparedCall, kWays> calls;
    size_t oldest = 0;  // the next of them to make room
  };
  static size_t place_of(ModelId model) { return static_cast<size_t>(model) % kSets; }

  std::vector<Set> sets_;  // none until something is prepared
};

struct Lane {
  int index = 0;
  Ref<Stream> stream;
  std::unique_ptr<Slot> slot;  // null: none has been needed
  device::CommandList list;
  PreparedCalls prepared;
  uint32_t long_runs = 0;
  uint64_t programs = 0;  // Executables::changes() when the first of them was prepared
};

class Lanes {
 public:
  Lanes(Ref<Roster> roster, Ref<Governor> governor);
  Result<Lane*> at(const Permit& permit, bool needs_stream);
  void drop_programs();
  void drop_idle_slots();

 private:
  struct alignas(64) Padded : Lane {};
  const Ref<Roster> roster_;
  const Ref<Governor> governor_;
  std::vector<Padded> lanes_;
  struct Visitor {};
  Guarded<Visitor, Rank::kPool> visitor_;
};

}  // namespace heddle::runtime
