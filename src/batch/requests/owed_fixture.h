// owed_fixture.h: tests that look at an Owed and let it go at once, so that the answer counts as given.
#pragma once

#include <vector>

#include "batch/requests/request_queue.h"

namespace heddle::batch::test {

inline bool mine(const Owed& owed) { return static_cast<bool>(owed); }
inline std::vector<void*> all_of(const Owed& owed) { return owed.payloads(); }

}  // namespace heddle::batch::test
