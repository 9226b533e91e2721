// process_exit.h: what must be over before static objects die.
//
//   What       exit() runs handlers and destroys static objects, latest first, while other threads go on. One
//              function, given here once, ends what those threads do; it has to run before the destructors of
//              what they use.
//   Ordering   Libraries make static objects on first use, also in the middle of a computation.
//              renew_exit_handler() registers the function again, behind all that exists by then. Call it
//              after a library's code has run for the first time; not without end.
//   Threads    Any. The function may be called several times, and by exit() only.
//   Fork       Waits while a thread registers: the C library's lock would stay taken in the child.
//   Blocks     As long as a registration, or fork().
//   Lifetime   The process. One registration costs the C library 32 bytes.
#pragma once

namespace heddle {

void set_exit_handler(void (*handler)());  // registers it, too
void renew_exit_handler();                 // nothing when none is set

}  // namespace heddle
