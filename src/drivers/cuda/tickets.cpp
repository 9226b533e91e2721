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
    HEDDLE_TRY_ASSIGN(ticket, Pinned::make(device_, sizeof(Ticket)));
    new (ticket->host()) Ticket;
  }
  Pinned* const at = ticket.get();
  return Lease(at, [all = shared_from_this(), ticket = std::move(ticket)](Pinned*) mutable {
    all->idle_.lock()->push_back(std::move(ticket));
  });
}

}  // namespace heddle::cuda
