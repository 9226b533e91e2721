#include "runtime/memory/slots.h"

#include <utility>

namespace heddle::runtime {

Ref<Slot> Slots::take() {
  std::unique_ptr<Slot> slot;
  if (auto idle = idle_.lock(); !idle->empty()) {
    slot = std::move(idle->back());  // the last one used: its bytes may still be in a cache
    idle->pop_back();
  }
  if (slot == nullptr) slot = make();
  return Ref<Slot>(slot.release(),
                   [self = shared_from_this()](Slot* back) { self->put_back(std::unique_ptr<Slot>(back)); });
}

void Slots::put_back(std::unique_ptr<Slot> slot) {
  if (fork_generation() != generation_) return;  // the lock is the parent's
  if (!slot->is_quiet()) return;
  auto idle = idle_.lock();
  if (idle->size() < kept_) idle->push_back(std::move(slot));
}  // freed after the lock otherwise: parameters die last

void Slots::also_ask(std::weak_ptr<const void> whose, std::function<void()> give_up) {
  auto others = others_.lock();
  std::erase_if(*others, [](const Other& each) { return each.whose.expired(); });
  others->push_back({std::move(whose), std::move(give_up)});
}

// The others first: what they give up comes back here.
Allocator::LetGo Slots::drop_idle() {
  Allocator::LetGo asked;
  const std::vector<Other> others = *others_.lock();
  for (const Other& other : others) {
    auto living = other.whose.lock();
    if (living == nullptr) continue;
    asked.push_back(std::move(living));
    other.give_up();
  }
  std::vector<std::unique_ptr<Slot>> dropped;  // freed after the lock
  dropped.swap(*idle_.lock());
  return asked;
}

}  // namespace heddle::runtime
