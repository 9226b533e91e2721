// tell.h: a copy to the host, and the word that tells the host that it is there.
//
//   What       The last kernel of a graph (graphs.h): the host sees its word 1.2 us sooner than one that the
//              stream writes behind the graph (../shared probes, P1 and P4), and launches one command less.
//   Ticket     Where the word is and what it becomes changes from run to run, and a graph's parameters do
//              not: they lie in pinned memory, where the host writes them before it launches the graph. They
//              are read while what is in front goes on.
//   Order      One block alone copies, so that its barrier orders all that it wrote before the word.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/quad.h"

namespace heddle::cuda {

struct alignas(16) Ticket {
  uint64_t word = 0, value = 0;
};

HEDDLE_DEVICE Ticket read_ticket(uint64_t address) {
#if defined(__CUDA_ARCH__)
  Ticket ticket;  // of the host's memory as it is now
  asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(ticket.word), "=l"(ticket.value)
               : "l"(address)
               : "memory");
  return ticket;
#else
  return *global<const Ticket>(address);
#endif
}

// With all that the thread knows to be written.
HEDDLE_DEVICE void tell_host(const Ticket& ticket) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(ticket.word), "l"(ticket.value) : "memory");
#elif !defined(__CUDACC__)
  uint64_t* const word = global<uint64_t>(ticket.word);
  if (on_tell != nullptr) on_tell();
  __atomic_store_n(word, ticket.value, __ATOMIC_RELEASE);
#endif
}

struct CopyAndTellParams {
  uint64_t bytes = 0, from = 0, to = 0;
  uint64_t ticket = 0;
};

struct CopyAndTell {
  static constexpr int kThreads = 1024;
  static constexpr bool kFollows = true;
  CopyAndTellParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    typename Block::template Own<Ticket> ticket(block);
    block.each_alone([&](int t) {
      if (t == 0) ticket[t] = read_ticket(p.ticket);
    });
    block.follow();
    const uint64_t all = p.bytes | p.from | p.to;  // whose lowest bit says how large pieces may be
    if (all % 16 == 0) {
      copy<Quad<uint32_t>>(block);
    } else if (all % 8 == 0) {
      copy<uint64_t>(block);
    } else if (all % 4 == 0) {
      copy<uint32_t>(block);
    } else {
      copy<uint8_t>(block);
    }
    block.each_alone([&](int t) {
      if (t == 0) tell_host(ticket[t]);
    });
  }

 private:
  template <class Piece, class Block>
  HEDDLE_DEVICE void copy(Block& block) const {
    const auto count = static_cast<int64_t>(p.bytes / sizeof(Piece));
    block.each([&](int t) {
      HEDDLE_UNROLL_BY(4)
      for (int64_t i = t; i < count; i += block.threads())
        global<Piece>(p.to)[i] = global<const Piece>(p.from)[i];
    });
  }
};

}  // namespace heddle::cuda
