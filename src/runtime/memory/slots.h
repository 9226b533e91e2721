// slots.h: the slots that no run uses at the moment.
//
//   What       take() gives one for a run of an asynchronous device, or for a batch that forms; it comes back
//              when its last holder lets go of it.
//   Bound      `kept` wait here; one more is freed, and so is one whose queue has failed: its buffers would
//              make every later run wait for that queue.
//   Others     Who keeps slots that no run uses, as batches that are over do, is asked to give them up with
//              those that wait here. They are let go of by who calls drop_idle(): one of them may end then.
//   Threads    Any. One lock, held for a look into a list.
//   Blocks     Never: a slot is made empty.
//   Lifetime   Slots that are out keep what they come back to.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/fork.h"
#include "base/sync.h"
#include "runtime/memory/slot.h"

namespace heddle::runtime {

class Slots : public std::enable_shared_from_this<Slots> {
 public:
  Slots(Ref<Allocator> allocator, bool unified, size_t kept)
      : allocator_(std::move(allocator)), unified_(unified), kept_(kept), generation_(fork_generation()) {}
  Ref<Slot> take();
  std::unique_ptr<Slot> make() const { return std::make_unique<Slot>(allocator_, unified_, held_); }
  Allocator::LetGo drop_idle();  // frees what no run uses, and asks the others, whom it returns
  // drop_idle() calls it, with no lock held, for as long as `whose` lives.
  void also_ask(std::weak_ptr<const void> whose, std::function<void()> give_up);
  const Slot::Held& held() const { return *held_; }  // by all slots that live, lanes' too

 private:
  void put_back(std::unique_ptr<Slot> slot);

  const Ref<Allocator> allocator_;
  const bool unified_;
  const size_t kept_;
  const Ref<Slot::Held> held_ = std::make_shared<Slot::Held>();
  const uint32_t generation_;  // fork_generation() of the maker
  Guarded<std::vector<std::unique_ptr<Slot>>, Rank::kPool> idle_;
  struct Other {
    std::weak_ptr<const void> whose;
    std::function<void()> give_up;
  };
  Guarded<std::vector<Other>, Rank::kPool> others_;
};

}  // namespace heddle::runtime
