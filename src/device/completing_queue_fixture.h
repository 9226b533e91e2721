// completing_queue_fixture.h: a test double: a queue whose completion path is the test.
//
//   What       Gives tests the right to advance and fail a timeline. Accepts every submission and runs
//              nothing.
//   Threads    advance() and fail(): one thread, as for a driver.
#pragma once

#include <memory>
#include <utility>

#include "device/device.h"

namespace heddle::device {

class CompletingQueue final : public Queue {
 public:
  CompletingQueue() : Queue(std::make_shared<Timeline>()) {}
  Status submit(const CommandList&, uint64_t, NoLocksHeld) override { return {}; }
  void advance(uint64_t value) { timeline()->advance(value, completion()); }
  void fail(Status cause) { timeline()->fail(std::move(cause), completion()); }
  Point point(uint64_t value) const { return {timeline(), value}; }
};

}  // namespace heddle::device
