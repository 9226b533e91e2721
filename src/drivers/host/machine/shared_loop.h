// shared_loop.h: a parallel loop whose chunks several threads take, each at first those of its own place.
//
//   What       The chunks are divided over places, a row of neighbours each. A thread begins at the place
//              that belongs to its core, and goes on at the next ones when that is empty. So a core gets the
//              same chunks of a model's step in call after call, and finds its part of the weights in its
//              cache.
//   Protocol   open() gives the loop a number and publishes it with the chunks and the places. A claim says
//              how many chunks of a place are taken in the loop of a number. A claim of an older loop counts
//              as none, so that opening writes one word, whatever the number of places. A thread that is
//              late finds a newer number there, or a place that is empty. Numbers wrap: of two the newer is
//              less than half of all numbers ahead, and claims that no thread has touched for long are
//              renewed.
//   Invariant  Each chunk of an open loop is taken once. A thread that takes a chunk has read the body of
//              that chunk's loop. The owner opens no other loop until the chunk is over. Every chunk has been
//              taken when the owner calls close().
//   Threads    own() to disown(): one owner at a time. take(): the owner and any others.
//   Blocks     Never.
#pragma once

#include <cstdint>
#include <vector>

#include "base/atomic.h"

namespace heddle::host {

class SharedLoop {
 public:
  using Body = void (*)(void*, int);
  static constexpr int kMaxChunks = 0xffff;

  // What a thread has to know of a loop to take from it.
  struct Opened {
    uint32_t number = 0;  // odd while the loop is open
    int chunks = 0, places = 0;
    bool open() const { return number % 2 != 0; }
  };
  struct Chunk {
    Body body;
    void* context;
    int index;
  };

  // first_number: for tests; even.
  explicit SharedLoop(int most_places, uint32_t first_number = 0);

  bool own() { return !owned_.load_relaxed() && !owned_.exchange_acq_rel(true); }
  void disown() { owned_.store_release(false); }
  bool is_owned() const { return owned_.load_relaxed(); }

  // The owner's. places: 1 to most_places, and to chunks.
  Opened open(Body body, void* context, int chunks, int places);
  void close();

  // seq_cst: a thread that is about to sleep says so before it looks, an owner opens before it looks for
  // sleepers.
  Opened now() const { return decoded(opened_.load_seq_cst()); }
  // The next chunk from this place on. False: all are taken, or the loop is over.
  bool take(const Opened& opened, int place, Chunk& chunk);

 private:
  struct alignas(64) Claim {
    Atomic<uint64_t> word{0};  // the number of the loop, and the first chunk of the place that is not taken
  };
  void renew_claims(uint32_t number);
  static uint64_t encoded(const Opened& o) {
    return uint64_t{o.number} << 32 | static_cast<uint64_t>(o.chunks) << 16 | static_cast<uint64_t>(o.places);
  }
  static Opened decoded(uint64_t word) {
    return {static_cast<uint32_t>(word >> 32), static_cast<int>(word >> 16 & 0xffff),
            static_cast<int>(word & 0xffff)};
  }

  alignas(64) Atomic<uint64_t> opened_{0};  // an Opened; opening publishes body and context
  Atomic<Body> body_{nullptr};              // of the open loop; written while it is closed
  Atomic<void*> context_{nullptr};          // likewise
  Atomic<bool> owned_{false};
  std::vector<Claim> claims_;
};

}  // namespace heddle::host
