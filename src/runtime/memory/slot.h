// slot.h: where the bytes that one run changes lie: its arena, and the staged inputs and outputs of callers.
//
//   What       The only place where callers' staged bytes meet the device. A Port is staging memory that
//              callers write and read, and the device memory that programs see: the same where memory is
//              unified.
//   Invariant  What is large enough stays where it is: runs of one shape find the addresses of the last one.
//   Threads    Its owner of the moment; the bytes of a port may be written by several threads at once.
//   Blocks     reserve_*(): as the allocator, when something has to grow.
//   Lifetime   Buffers that a submission names outlive the slot's growth. Those of a run of run() are kept by
//              the slot, its submission keeps that, and it does not grow before that is over.
#pragma once

#include <vector>

#include "base/atomic.h"
#include "runtime/memory/allocator.h"
#include "runtime/memory/slot_run.h"

namespace heddle::runtime {

class Slot {
 public:
  struct Port {
    Ref<device::Buffer> staging, device;
  };
  struct Held {  // bytes of all slots that share it, by kind: statistics, relaxed
    Atomic<uint64_t> device{0}, staging{0};
  };
  // `unified`: staging memory is device memory.
  Slot(Ref<Allocator> allocator, bool unified, Ref<Held> held)
      : allocator_(std::move(allocator)), unified_(unified), held_(std::move(held)) {}
  ~Slot();
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  using Callbacks = Allocator::Callbacks;
  Status reserve_arena(uint64_t bytes, Callbacks callbacks = Callbacks::yes);
  Status reserve_input(size_t index, uint64_t bytes, Callbacks callbacks = Callbacks::yes) {
    return reserve(inputs_, index, bytes, callbacks);
  }
  Status reserve_output(size_t index, uint64_t bytes, Callbacks callbacks = Callbacks::yes) {
    return reserve(outputs_, index, bytes, callbacks);
  }
  bool holds_arena(uint64_t bytes) const {
    return bytes == 0 || (arena_ != nullptr && arena_->bytes() >= bytes);
  }

  // For the next user: its buffers forget who wrote them. False when something that names them is unfinished;
  // after a failure something is, for good.
  bool is_quiet();

  // `buffer` is where callers write this input.
  bool stages(size_t index, const Ref<device::Buffer>& buffer) const {
    return index < inputs_.size() && buffer != nullptr && inputs_[index].staging == buffer;
  }
  SlotRun& run() { return run_; }
  // A run of run(), which marks no buffer.
  void in_use_until(device::Point last) { last_ = std::move(last); }

  const Ref<device::Buffer>& arena() const { return arena_; }  // null: no program has needed one
  const Port& input(size_t index) const { return inputs_[index]; }
  const Port& output(size_t index) const { return outputs_[index]; }

 private:
  Result<Ref<device::Buffer>> take(uint64_t bytes, device::MemoryKind kind, Callbacks callbacks);
  void let_go(Ref<device::Buffer>& buffer);
  Atomic<uint64_t>& held(const device::Memory& memory) {
    return memory.kind() == device::MemoryKind::staging ? held_->staging : held_->device;
  }
  Status reserve(std::vector<Port>& ports, size_t index, uint64_t bytes, Callbacks callbacks);
  template <class F>
  void each_buffer(F&& f) const;
  static bool holds(const std::vector<Port>& ports, size_t index, uint64_t bytes);

  const Ref<Allocator> allocator_;
  const bool unified_;
  const Ref<Held> held_;
  Ref<device::Buffer> arena_;
  std::vector<Port> inputs_, outputs_;
  SlotRun run_;
  device::Point last_;
};

}  // namespace heddle::runtime
