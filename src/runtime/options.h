// options.h: what a Runtime may use, and what it does when that is used up.
//
//   What       Plain values, read once by Runtime::make. Defaults suit one process that owns the device.
//   Lifetime   `clock` outlives the Runtime. It dates events; deadlines of parked threads run in real time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace heddle::runtime {

enum class Exhaustion : uint8_t {
  share,  // the least loaded stream, beside its other lessees; their submissions take turns
  wait,   // until a lease is returned, first come first served, at most stream_wait_max
  fail,   // exhausted, at once
};

struct Options {
  int streams = 32;  // 2 to 1024; stream 0 is the default stream and is not leased
  Exhaustion exhaustion = Exhaustion::share;
  Duration stream_wait_max = std::chrono::seconds(30);

  uint64_t executable_bytes = uint64_t{512}
                              << 20;  // compiled programs kept, by bytes and by count; 0 is unbounded
  size_t executable_count = 0;

  double memory_fraction = 1.0;  // of Traits::memory_bytes and staging_bytes: the allocator's limits
  double high_watermark = 0.95;  // of the limit: beyond it cached blocks are freed ...
  double low_watermark = 0.8;    // ... down to here

  int in_flight = 0;          // submissions at once, 1 to 1024; 0: as many as the device asks for
  int slices = 0;             // threads in time_slices.h at once, 1 to 1024; 0: its own numbers
  bool own_governor = false;  // shares the device with no other runtime, whatever its name
  const Clock* clock = &Clock::real();
};

}  // namespace heddle::runtime
