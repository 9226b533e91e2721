// out_of_memory_fixture.h: this program's operator new, which fails where a test says so.
#pragma once

#include <cstdint>

namespace heddle::test {

// Of this thread. Which of its next allocations fails: 0, none; -1, each.
extern thread_local int64_t fails_in;
extern thread_local bool fails_from_there;  // and each after that one
extern thread_local int64_t living;         // allocated here less freed here

}  // namespace heddle::test
