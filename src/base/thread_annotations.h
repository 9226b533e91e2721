// thread_annotations.h: Clang's -Wthread-safety attributes under Heddle's names; nothing on other compilers.
//
//   What       Guarded and Held carry them, so that Clang refuses, at compile time, to lock one Guarded twice
//              in a function. Code that reaches its data through a Guarded needs none of these itself.
//   Threads    Compile time only: they change no code.
#pragma once

#if defined(__clang__)
#define HEDDLE_ANNOTATE(x) __attribute__((x))
#else
#define HEDDLE_ANNOTATE(x)
#endif

#define HEDDLE_CAPABILITY(kind) HEDDLE_ANNOTATE(capability(kind))
#define HEDDLE_SCOPED_CAPABILITY HEDDLE_ANNOTATE(scoped_lockable)
#define HEDDLE_ACQUIRE(...) HEDDLE_ANNOTATE(acquire_capability(__VA_ARGS__))
#define HEDDLE_RELEASE(...) HEDDLE_ANNOTATE(release_capability(__VA_ARGS__))
#define HEDDLE_REQUIRES(...) HEDDLE_ANNOTATE(requires_capability(__VA_ARGS__))
#define HEDDLE_EXCLUDES(...) HEDDLE_ANNOTATE(locks_excluded(__VA_ARGS__))
#define HEDDLE_NO_ANALYSIS HEDDLE_ANNOTATE(no_thread_safety_analysis)
