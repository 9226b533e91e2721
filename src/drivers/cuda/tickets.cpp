#include "drivers/cuda/tickets.h"

#include <new>

namespace heddle::cuda {

Result<Tickets::Lease> Tickets::take() {
  std::list<Ref<Pinned>> one;
  {
    auto idle = idle_.lock();
    if (!idle->empty()) one.splice(one.end(), *idle, std::prev(idle->end()));
  }
  if (one.empty()) {
    HEDDLE_TRY_ASSIGN(Ref<Pinned> made, Pinned::make(device_, sizeof(Page)));
    new (made->host()) Page;
    one.push_back(std::move(made));
  }
  Pinned* const at = one.front().get();
  return Lease(at, [all = shared_from_this(), one = std::move(one)](Pinned*) mutable {
    if (!all->device_->is_ours()) return;  // the lock is the parent's
    auto idle = all->idle_.lock();
    idle->splice(idle->end(), one);
  });
}

void Tickets::write_nothing(const Lease& lease) {
  write(lease, {reinterpret_cast<uint64_t>(&at(lease)->nowhere), 0});
}

}  // namespace heddle::cuda
