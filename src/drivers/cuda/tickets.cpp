#include "drivers/cuda/tickets.h"

#include <new>

namespace heddle::cuda {

Result<Tickets::Lease> Tickets::take() {
  Ref<Pinned> ticket;
  {
    auto idle = idle_.lock();
    if (!idle->empty()) {
      ticket = std::move(idle->back());
      idle->pop_back();
    }
  }
  if (ticket == nullptr) {
    HEDDLE_TRY_ASSIGN(ticket, Pinned::make(device_, sizeof(Page)));
    new (ticket->host()) Page;
  }
  Pinned* const at = ticket.get();
  return Lease(at, [all = shared_from_this(), ticket = std::move(ticket)](Pinned*) mutable {
    if (!all->device_->is_ours()) return;  // the lock is the parent's
    all->idle_.lock()->push_back(std::move(ticket));
  });
}

void Tickets::write_nothing(const Lease& lease) {
  write(lease, {reinterpret_cast<uint64_t>(&at(lease)->nowhere), 0});
}

}  // namespace heddle::cuda
