// protocol.h: what the simulated device finds its users do wrong, by the rules of src/device.
//
//   Threads    Values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::sim {

enum class Violation : uint8_t {
  kUseAfterFree,         // memory was freed while a submission that names it was not over
  kRecycledInFlight,     // a buffer died while a submission that names it was not over
  kListDropped,          // a command list was changed before its submission was over
  kDoubleCommit,         // a submission's value is not its queue's last one plus one
  kTwoThreads,           // two threads were in submit() of one queue at once
  kMissingDependency,    // two queues touched the same bytes, and neither waited for the other
  kArenaShared,          // an arena was used by two submissions at once
  kAwaitedTooEarly,      // a wait names a point that no thread is about to submit
  kStagingReadTooEarly,  // the host read staging memory that a submission not over writes
  kWorkAfterFailure,     // a queue that had refused work for its failure was given more
  kBinding,              // a view is not what Traits::binding allows, or leaves its buffer
  kCount
};
std::string_view name(Violation what);

struct Found {
  Violation what;
  std::string detail;
};
std::string to_string(const Found& found);

}  // namespace heddle::sim
