// vectorised.h: how a kernel's loops become vector instructions of the machine at hand.
//
//   What       HEDDLE_VECTORISED before a function compiles it for AVX-512, AVX2 and the baseline; the
//              loader picks one. HEDDLE_INLINE marks what must be inlined into it, so that it is compiled
//              for the same instructions.
//   Invariant  Results do not depend on where an element lies in a loop: no libm call differs between a
//              loop's body and its tail.
//   Threads    Nothing here has state.
#pragma once

// Sanitizers instrument the resolver, which runs before their own start; Clang 16 has no multi-versioned
// templates.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define HEDDLE_VECTORISED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define HEDDLE_VECTORISED
#endif

#define HEDDLE_INLINE __attribute__((always_inline)) inline
