// plain_source_fixture.h: memory straight from a device, without a cache and without a limit of ours.
//
//   Lifetime   The device outlives it, and its buffers.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "device/device.h"

namespace heddle::device {

class PlainSource final : public Source {
 public:
  explicit PlainSource(Device& device) : device_(device) {}
  using Source::allocate;
  Result<Ref<Buffer>> allocate(uint64_t bytes, MemoryKind kind) override {
    HEDDLE_TRY_ASSIGN(auto memory, device_.allocate(std::max<uint64_t>(bytes, 64), kind, NoLocksHeld{}));
    return std::make_shared<Buffer>(std::move(memory), bytes, nullptr);
  }
  Result<Ref<const void>> charge(uint64_t bytes) override {
    return Ref<const void>(std::make_shared<uint64_t>(bytes));
  }

 private:
  Device& device_;
};

// Counts, and has no memory.
class CountingSource final : public Source {
 public:
  using Source::allocate;
  Result<Ref<Buffer>> allocate(uint64_t bytes, MemoryKind) override {
    return Status::exhausted("there is no memory here for ", bytes, " bytes");
  }
  Result<Ref<const void>> charge(uint64_t bytes) override {
    return Ref<const void>(std::make_shared<uint64_t>(bytes));
  }
};

inline Ref<Source> plain_source(Device& device) { return std::make_shared<PlainSource>(device); }

// What one run of the program at a time needs; null when that is nothing.
inline Result<Ref<Buffer>> arena_for(Device& device, const Program& program) {
  if (program.arena_bytes() == 0) return Ref<Buffer>();
  return PlainSource(device).allocate(program.arena_bytes());
}

}  // namespace heddle::device
