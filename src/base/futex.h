// futex.h: a thread sleeps while a word has a value, on Linux.
//
//   What       sleep_while() and wake(), what Condition and Parker are made of. Elsewhere this header is
//              empty.
//   Ordering   The kernel compares the word before it puts the thread to sleep: a change before that,
//              followed by a wake(), is not missed. It orders nothing else.
//   Threads    Any.
//   Blocks     sleep_while(), until woken or the deadline. It may also return for no reason: its user looks
//              at what it waits for, and waits again.
//   Lifetime   The word outlives every sleep. wake() passes its address only.
#pragma once

#if defined(__linux__)

#include <cstdint>

#include "base/atomic.h"
#include "base/clock.h"

namespace heddle::futex {

inline constexpr int kAll = 0x7fffffff;

// `at` names the wait in the report of a simulation; a string literal.
void sleep_while(const Atomic<uint32_t>& word, uint32_t value, Deadline deadline, const char* at);
void wake(const Atomic<uint32_t>& word, int sleepers, const char* at);

}  // namespace heddle::futex

#endif
