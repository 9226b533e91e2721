#include "device/queue.h"

#include "device/row_faults.h"

namespace heddle::device {

void CommandList::keep_waits() {
  std::erase_if(commands_, [](const Command& each) { return !std::holds_alternative<Wait>(each); });
}

void Queue::refuse(const CommandList& list, const Status& why) {
  if (!list.is_shared()) return;
  for (const Command& command : list) {
    const auto* run = std::get_if<Run>(&command);
    if (run != nullptr && run->row_faults != nullptr && run->row_faults->rows() == 0)
      run->row_faults->record_whole(why);
  }
}

}  // namespace heddle::device
