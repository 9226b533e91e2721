// binding.h: a call's views made fit for a device: what it cannot name where it lies goes through a slot.
//
//   What       bind() checks given outputs and allocates missing ones. stage() copies the caller's bytes into
//              a slot and makes the commands: copies in, the run, copies out. copy_back() copies the
//              caller's results out of the slot, once the work is over.
//   Where      An output that nobody gave lies where the host can address it, unless an input is in memory
//              that it cannot.
//   Lifetime   A local of one call; `slot` is its until copy_back().
//   Blocks     bind(), as the allocator does, and for work on memory of another device. Done before the call
//              holds a turn or a permit, so that pressure callbacks meet neither.
#pragma once

#include <span>
#include <vector>

#include "runtime/memory/allocator.h"
#include "runtime/memory/slot.h"
#include "runtime/model.h"
#include "runtime/streams/stream.h"

namespace heddle::runtime {

// True when the device's commands may name the view where it lies. A run may not name strided ones.
bool can_name(const device::Device& device, const device::View& view);

// What a Run may name: contiguous, aligned to its element, and such as the device's Binding says.
bool can_run_on(const device::Device& device, const device::View& view);

// Whether a run may write an output to `to`, where it reads `from` as an input.
bool may_write_beside(const device::Program& program, size_t output, const device::View& to, size_t input,
                      const device::View& from);

// A view of the same bytes as the caller's memory, once no other device's work is in the way. invalid when
// the host cannot address them.
Result<device::View> as_callers(const device::View& view, bool to_write, Deadline deadline);

struct Call {
  std::span<const device::View> inputs = {};
  // Empty: fresh buffers; else one contiguous view per output. It may overlap inputs.
  std::span<const device::View> outputs = {};
  Stream* stream = nullptr;  // null: the lane's own stream; no order among calls
  // Until when it may wait for another thread's compilation, for its turn, its permit and the results.
  // Without `keep` the wait for results has no end while they use memory of the caller.
  Deadline deadline = Deadline::never();
  // Return when the results are there. Always so when an input or output is the caller's memory.
  bool wait = true;
  Ref<device::RowFaults> row_faults =
      nullptr;                     // for rows of several callers (device::Run says what it means)
  Ref<const void> keep = nullptr;  // owns the caller's memory; let go when the work is over
  Ref<Slot> slot = nullptr;        // to run with; null: the runtime's
  // Results that `outputs` does not name lie in `slot`, where the host can address them, and not in fresh
  // buffers.
  bool results_in_slot = false;
  bool in_slices = false;          // time_slices.h
  bool results_on_device = false;  // fresh ones, though no input is in memory of the device alone
};

class Binding {
 public:
  // Once, on a fresh Binding.
  Status bind(Allocator& allocator, const device::Device& device, const Model& model,
              const device::Program& program, const Call& call);

  bool needs_slot() const { return arena_bytes_ != 0 || !staged_.empty(); }
  Status reserve(Slot& slot, Allocator::Callbacks callbacks = Allocator::Callbacks::yes) const;
  // `list` is empty.
  void stage(Ref<const device::Program> program, const Slot* slot, Ref<device::RowFaults> row_faults,
             device::CommandList& list);
  void copy_back();
  std::vector<device::View> take_outputs() { return std::move(outputs_); }
  // The run is submitted, and over at `point`: memory of another device that it writes is in use until then.
  void mark_foreign(const device::Point& point, const Ref<device::RowFaults>& faults) const;
  bool names_caller_memory() const { return names_caller_memory_; }
  bool copies_back() const { return !back_.empty(); }

 private:
  struct Staged {
    bool output;
    size_t index;
    uint64_t bytes;
    device::View given;  // what the caller brought
    bool stays = false;  // an output whose result lies in the slot: `given` says what it is like
  };
  struct Apart {
    size_t output;
    device::View to;  // of the device: the run writes elsewhere, since it reads there
  };
  struct Back {
    device::View from, to;  // both of the host
  };
  Status bind_input(const device::Device& device, size_t index, Deadline deadline);
  Status bind_given(const device::Device& device, const device::View& given, Deadline deadline);
  bool is_in_the_way(const device::Device& device, const device::Program& program, const Call& call,
                     size_t output) const;
  Status bind_apart(Allocator& allocator, const device::Device& device, const device::View& given);
  Status bind_fresh(Allocator& allocator, const device::Device& device, const ir::ConcreteType& type);
  void stage_input(const Staged& each, const Slot& slot, device::CommandList& list);
  void stage_output(const Staged& each, const Slot& slot, device::CommandList& list);

  uint64_t arena_bytes_ = 0;
  std::vector<device::View> run_inputs_, run_outputs_;  // what the program sees
  std::vector<device::View> outputs_;                   // what the caller gets
  std::vector<Staged> staged_;
  std::vector<Apart> apart_;
  std::vector<Back> back_;
  std::vector<Ref<device::Buffer>>
      foreign_;  // given to write to, and bound where they lie, as the host's memory
  bool names_caller_memory_ = false;
  bool host_reads_results_ = true;
};

}  // namespace heddle::runtime
