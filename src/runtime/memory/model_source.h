// model_source.h: where a model's memory comes from: the allocator, and while it compiles without callbacks.
//
//   What       Until loaded() as the allocator. From then on what it asks for is for a compilation, which
//              other threads wait for, and a pressure callback may call the model: callbacks run after it
//              has failed, and then it is tried again (Runtime::find_program()).
//   Threads    Any, but loaded(): once, before the model is used.
//   Blocks     As the allocator.
#pragma once

#include "base/atomic.h"
#include "runtime/memory/allocator.h"

namespace heddle::runtime {

class ModelSource final : public device::Source {
 public:
  explicit ModelSource(Ref<Allocator> allocator) : allocator_(std::move(allocator)) {}
  void loaded() { callbacks_ = Allocator::Callbacks::no; }

  Result<Ref<device::Buffer>> allocate(uint64_t bytes, device::MemoryKind kind) override {
    auto given = allocator_->allocate(bytes, kind, callbacks_);
    if (!given.ok()) refuse(bytes);
    return given;
  }
  Result<Ref<const void>> charge(uint64_t bytes) override {
    auto charged = allocator_->charge(bytes, callbacks_);
    if (!charged.ok()) refuse(bytes);
    return charged;
  }

  uint64_t refusals() const { return refusals_.load_acquire(); }
  uint64_t last_refused() const { return last_refused_.load_relaxed(); }  // bytes

 private:
  void refuse(uint64_t bytes) {
    last_refused_.store_relaxed(bytes);
    refusals_.add_release(1);
  }

  const Ref<Allocator> allocator_;
  Allocator::Callbacks callbacks_ = Allocator::Callbacks::yes;
  Atomic<uint64_t> refusals_{0};  // only grows: a caller compares, and acquires the size of one
  Atomic<uint64_t> last_refused_{0};
};

}  // namespace heddle::runtime
