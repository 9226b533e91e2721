/* agx_guard.h: keeps a process alive whose libraries share Metal encoders between threads on Apple silicon.
 *
 *   Why       -[AGXG16XFamilyComputeContext destroyImpl] clears the encoder's _impl after it has dropped
 *             its lock; a thread that encodes meanwhile reads a null or recycled pointer
 *             (docs/apple-report.md).
 *   What      Replaces methods of the driver's command encoders, command buffers and command queues at run
 *             time:
 *             1. originals are kept per class and selector;
 *             2. an encoder is kept until its command buffer completes, and the newest ones a while longer;
 *             3. use and destruction of one encoder take turns: a lock per encoder, none for all of them.
 *   Promise   No call is dropped silently. A call on an encoder that another thread has ended is carried
 *             over: it is encoded into a buffer of the same queue, committed right behind the encoder's
 *             own. What cannot be carried over raises NSInternalInconsistencyException with class and
 *             selector.
 *   Loading   DYLD_INSERT_LIBRARIES (macOS), LD_PRELOAD (the double on Linux), or agx_guard_install()
 *             before a device is made. The library is never unloaded.
 *   Threads   Every function may be called from any thread.
 *   Environment, read once, when the library installs itself or agx_guard_install() is called first:
 *             AGX_GUARD=off            does nothing at all
 *             AGX_GUARD_VERBOSE=1      says on stderr what is guarded, and what is not
 *             AGX_GUARD_WARN_MS=1000   warns of a wait for an encoder of this length, again and again
 *                                      (0: never)
 *             AGX_GUARD_LIMIT_MS=0     stops the process with a reason after such a wait; 0: never
 *             AGX_GUARD_RECENT=1024    encoders kept after their buffer has completed, for callers of
 *                                      bare pointers
 *             AGX_GUARD_REPORT=FILE    writes agx_guard_report() to FILE when the process exits
 *             AGX_GUARD_WITHOUT=a,b    for tests: without `originals`, `keep` or `order`
 */
#ifndef AGX_GUARD_H
#define AGX_GUARD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum agx_guard_result {
  AGX_GUARD_INSTALLED = 0,
  AGX_GUARD_ALREADY = 1,      /* it was installed before */
  AGX_GUARD_WAITING = 2,      /* no driver is loaded yet: the first device or encoder brings it in */
  AGX_GUARD_OFF = 3,          /* AGX_GUARD=off */
  AGX_GUARD_OTHER_COPY = 4,   /* another copy of this library guards this process */
  AGX_GUARD_NOT_INSTALLED = 5 /* nothing to uninstall */
};

/* Called again, it looks for driver classes that have come since. */
enum agx_guard_result agx_guard_install(void);

/* Puts the originals back, but for methods that someone else has replaced since; lets go of every encoder.
 *             */
enum agx_guard_result agx_guard_uninstall(void);

struct agx_guard_statistics {
  uint64_t size; /* of the struct, as the library knows it */
  uint64_t active;
  uint64_t classes_guarded;
  uint64_t methods_guarded;
  uint64_t methods_unguarded; /* of an encoder's protocols, with a signature that the guard does not know */
  uint64_t calls;             /* on encoders */
  uint64_t lock_acquisitions;
  uint64_t lock_contentions;
  uint64_t lock_wait_warnings;
  uint64_t lock_limits; /* 0 in a process that lives */
  uint64_t lock_wait_us_max;
  uint64_t encoders_made;
  uint64_t encoders_made_parallel; /* by a parallel render encoder */
  uint64_t encoders_adopted;       /* made before the guard was installed */
  uint64_t encoders_released;
  uint64_t encoders_tracked; /* now */
  uint64_t encoders_open;    /* now: tracked and not ended */
  uint64_t encoders_kept;    /* now */
  uint64_t encoders_kept_past_completion;
  uint64_t buffers_made;
  uint64_t buffers_committed;
  uint64_t buffers_committed_open; /* with an encoder that had not ended: Metal's own rule is left to Metal */
  uint64_t buffers_abandoned;      /* never committed: their encoders were let go */
  uint64_t events_signalled;
  uint64_t events_waited_for;
  uint64_t late_calls;    /* on an encoder that had ended */
  uint64_t late_carried;  /* encoded into a buffer of their own */
  uint64_t late_refused;  /* raised */
  uint64_t late_nothing;  /* had nothing to do: a second end, a debug group */
  uint64_t late_buffers;  /* command buffers made for late calls */
  uint64_t calls_dropped; /* 0: there is no such path */
};

/* Fills at most `size` bytes. */
void agx_guard_read(struct agx_guard_statistics* statistics, size_t size);

int agx_guard_is_active(void);

/* Methods that no longer lead to the guard, since someone else replaced them: 0 when all is well. */
size_t agx_guard_verify(void);

/* JSON: settings, guarded classes with their methods, unguarded methods, statistics. Returns the full
 *             length. */
size_t agx_guard_report(char* text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
