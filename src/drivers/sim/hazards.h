// hazards.h: whether two pieces of work that touch the same bytes were ordered, by the rules of the device
// and not by luck.
//
//   What       All work has a position: its queue and its number there. A Knowledge (a vector clock) says
//              which positions are known to be over. It travels: from work to what waits for it, and from
//              what the host has seen completed to what it submits afterwards. An AccessLog keeps what
//              touched a block of memory lately, and finds an earlier access that a new one conflicts with
//              and does not know of.
//   Shared     By the simulated device and the Metal double.
//   Invariant  Never a false alarm: all of the host counts as one thread, so what one thread saw completed
//              counts as seen by all.
//   Threads    Retired::contains(): any. The rest: one at a time.
//   Blocks     Never.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/atomic.h"

namespace heddle::sim {

using QueueNumber = uint64_t;

struct Position {
  QueueNumber queue = 0;
  uint64_t pass = 0;
};

// Queues that died: all of their passes are over for everyone. It remembers those near the oldest one that
// lives. What is known of others is kept, which costs memory only.
class Retired {
 public:
  explicit Retired(QueueNumber first) : floor_(first) {}  // the first queue that there will be
  void add(QueueNumber queue);                            // one thread at a time
  bool contains(QueueNumber queue) const;

 private:
  static constexpr size_t kWords = 1024, kTable = 64 * kWords;
  static uint64_t bit(QueueNumber queue) { return uint64_t{1} << (queue % 64); }
  static size_t word(QueueNumber queue) { return queue % kTable / 64; }

  // All queues below are retired. Only grows: released before the bits that it makes free are cleared, so
  // that a reader that finds a bit cleared finds the queue below.
  Atomic<uint64_t> floor_;
  // Bits of the queues from the floor on, a ring: set acq_rel after the queue's last pass, acquired by
  // readers.
  std::array<Atomic<uint64_t>, kWords> words_;
};

class Knowledge {
 public:
  bool covers(Position position) const;
  void learn(const Knowledge& other);
  void learn_all_up_to(Position position);  // it and all before it on its queue
  void learn_only(Position position);       // for what orders single passes of one queue, a fence say
  void forget(const Retired& retired);      // keeps it small where queues come and go

 private:
  std::map<QueueNumber, uint64_t> up_to_;
  std::map<QueueNumber, std::set<uint64_t>> beyond_;
};

struct Bytes {
  uint64_t begin = 0;
  uint64_t end = 0;
};
inline bool overlap(Bytes a, Bytes b) { return a.begin < b.end && b.begin < a.end; }

struct Access {
  Bytes bytes;
  bool writes = false;
  Position position;
  bool exclusive = false;  // of memory that one piece of work owns while it lasts, an arena say
};

class AccessLog {
 public:
  // Records the access and returns nothing, or the earlier access that it was not ordered after. `tracked`:
  // the device itself orders passes of one queue, and `known` learns of them.
  std::optional<Access> record(const Access& access, bool tracked, Knowledge* known, const Retired& retired);

 private:
  static constexpr size_t kKept = 256;
  std::vector<Access> entries_;
};

std::string describe(const Access& earlier,
                     const Access& later);  // "written by pass 1 of queue 2 and read by"

}  // namespace heddle::sim
