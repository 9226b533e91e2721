// work_order.h: which work of streams is over for certain when other work begins, and whether commands that
// touch the same memory are ordered.
//
//   What       Vector clocks of drivers/sim/hazards.h. A stream's work knows what came before it on the
//              stream, what the events that it waits for were recorded behind, and what the host could have
//              seen when it handed the work in: ends of queries and synchronisations that said yes, and all
//              that came before a word that a stream wrote.
//   Finds      Two touches, one of which writes, of which neither knows of the other. They are compared where
//              they begin at one address, and where one of known length has the beginning of an earlier one.
//              A kernel's touches are the addresses that it was given (touches.h).
//   Not found  The order of the nodes of one graph, and what the host itself reads and writes.
//   Invariant  No false alarm: what one thread of the host could have seen, all threads have.
//   Threads    Any.
#pragma once

#include <memory>

#include "drivers/sim/hazards.h"
#include "tests/cuda_double/device_memory.h"

namespace heddle::cuda_double {

using Known = std::shared_ptr<const sim::Knowledge>;
Known known_to_host();
void show_host(const Known& known);  // the host found it over

class WorkOrder {  // of one stream
 public:
  WorkOrder();
  ~WorkOrder();  // all of its work is over
  WorkOrder(const WorkOrder&) = delete;
  WorkOrder& operator=(const WorkOrder&) = delete;

  void begin(const Known& host);     // a command that was handed in when the host knew this
  Known up_to_here();                // what knows whoever waits for this point
  void learn(const Known& awaited);  // waited for
  void show_host();                  // what is over
  // By the command that has begun, of a block of memory.
  void touch(cuda::Address at, uint64_t bytes, bool writes, const char* what);
  // Work on memory that the command frees comes before it.
  void check_unused(cuda::Address at, uint64_t bytes, const char* what);

  static WorkOrder* of_thread();  // null: the thread is no stream's
  void take_thread();             // is this stream's

 private:
  sim::Position here_;  // the command that has begun
  sim::Knowledge known_;
  Known host_;  // that known_ has
};
void check_unused(cuda::Address at, uint64_t bytes, const char* what);  // on any stream

}  // namespace heddle::cuda_double
