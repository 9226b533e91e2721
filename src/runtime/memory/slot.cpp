#include "runtime/memory/slot.h"

#include <cassert>

namespace heddle::runtime {

using device::Buffer;
using device::MemoryKind;

Slot::~Slot() {
  let_go(arena_);
  for (std::vector<Port>* ports : {&inputs_, &outputs_}) {
    for (Port& port : *ports) {
      if (port.staging == port.device) port.staging = nullptr;
      let_go(port.staging);
      let_go(port.device);
    }
  }
}

Result<Ref<Buffer>> Slot::take(uint64_t bytes, MemoryKind kind, Callbacks callbacks) {
  HEDDLE_TRY_ASSIGN(Ref<Buffer> buffer, allocator_->allocate(bytes, kind, callbacks));
  held(buffer->memory()).add_relaxed(buffer->memory().bytes());
  return buffer;
}

void Slot::let_go(Ref<Buffer>& buffer) {
  if (buffer == nullptr) return;
  run_.clear();
  held(buffer->memory()).sub_relaxed(buffer->memory().bytes());
  buffer = nullptr;
}

// What is too small goes first: what it held is worth nothing, and both may not fit.
Status Slot::reserve_arena(uint64_t bytes, Callbacks callbacks) {
  if (holds_arena(bytes)) return {};
  assert(last_.done() || last_.timeline->failed());
  let_go(arena_);
  HEDDLE_TRY_ASSIGN(arena_, take(bytes, MemoryKind::device, callbacks));
  return {};
}

Status Slot::reserve(std::vector<Port>& ports, size_t index, uint64_t bytes, Callbacks callbacks) {
  if (holds(ports, index, bytes)) return {};
  assert(last_.done() || last_.timeline->failed());
  if (ports.size() <= index) ports.resize(index + 1);
  Port& port = ports[index];
  if (port.staging == port.device) port.staging = nullptr;
  let_go(port.staging);
  let_go(port.device);
  HEDDLE_TRY_ASSIGN(port.device, take(bytes, MemoryKind::device, callbacks));
  if (unified_) {
    port.staging = port.device;
  } else {
    HEDDLE_TRY_ASSIGN(port.staging, take(bytes, MemoryKind::staging, callbacks));
  }
  return {};
}

template <class F>
void Slot::each_buffer(F&& f) const {
  if (arena_ != nullptr) f(*arena_);
  for (const std::vector<Port>* ports : {&inputs_, &outputs_}) {
    for (const Port& port : *ports) {
      if (port.device != nullptr) f(*port.device);
      if (port.staging != nullptr && port.staging != port.device) f(*port.staging);
    }
  }
}

bool Slot::is_quiet() {
  bool quiet = last_.done();
  each_buffer([&](Buffer& buffer) {
    quiet = quiet && buffer.pending().empty();
    buffer.forget_writer();
  });
  if (quiet) run_.rest();  // else its list may still be read
  return quiet;
}

bool Slot::holds(const std::vector<Port>& ports, size_t index, uint64_t bytes) {
  return index < ports.size() && ports[index].staging != nullptr && ports[index].staging->bytes() >= bytes;
}

}  // namespace heddle::runtime
