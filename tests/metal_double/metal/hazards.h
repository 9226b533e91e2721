// hazards.h: whether two passes that touch the same bytes were ordered, by Metal's rules rather than by luck.
//
//   What       Every pass has a position: its queue and its number on it. A Knowledge says which positions
//              are known to be over. It travels: from a pass over a fence to the next, from a signal over an
//              event to a wait, from a completed command buffer to what the host commits afterwards.
//   Ordering   One queue: tracked buffers are ordered by Metal, untracked ones by a fence, by an event, or
//              by a commit after the earlier one's completion. Two queues: by an event or such a commit,
//              tracked or not.
//   Invariant  Never a false alarm: all of the host counts as one thread, so what one thread saw completed
//              counts as seen by all.
//   Threads    Any; one lock, the innermost of the double.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace heddle::metal_double {

using QueueNumber = uint64_t;

struct Position {
  QueueNumber queue = 0;
  uint64_t pass = 0;
};

class Knowledge {
 public:
  bool covers(Position position) const;
  void learn(const Knowledge& other);
  void learn_all_up_to(Position position);  // it and all before it on its queue
  void learn_only(Position position);       // for what a fence or tracking orders: passes of one queue
  void forget_retired();                    // keeps it small where queues come and go

 private:
  std::map<QueueNumber, uint64_t> up_to_;
  std::map<QueueNumber, std::set<uint64_t>> beyond_;
};

// The accesses that a buffer has seen lately.
struct Bytes {
  uint64_t begin = 0;
  uint64_t end = 0;
};
class AccessLog {
 public:
  // Records the access and returns an empty string, or says which earlier access it was not ordered after.
  std::string record(Bytes bytes, bool writes, Position position, bool tracked, Knowledge* known);

 private:
  struct Entry {
    Bytes bytes;
    bool writes = false;
    Position position;
  };
  static constexpr size_t kKept = 256;
  std::vector<Entry> entries_;
};

// A queue that died: all of its passes are over for everyone.
void retire(QueueNumber queue);

// What the host has seen completed.
void host_saw(const Knowledge& completed);
Knowledge host_knowledge();

}  // namespace heddle::metal_double
