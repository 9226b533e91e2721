// work.h: one command of the simulated device, between its beginning and its end.
//
//   What       The seed decides when it reads and when it writes: all at its beginning, all at its end, or a
//              part at each. What it is going to write holds poison until then. So a command that was not
//              ordered after another one meets wrong bytes, early or late.
//   Threads    The event loop's thread.
//   Blocks     For the arithmetic, which the wrapped device does on this thread.
#pragma once

#include <vector>

#include "device/device.h"
#include "drivers/sim/memory.h"
#include "drivers/sim/schedule.h"

namespace heddle::sim {

// What a command touches.
struct Touch {
  Ref<Block> block;
  Bytes range;
  bool writes = false;
  bool arena = false;
};

// A command whose views lie in memory of the wrapped device, and which the wrapped device's queue can do.
struct Step {
  device::Command command;
  std::vector<Touch> touches = {};
};

// The one queue of the wrapped device, where all programs run.
class InnerQueue {
 public:
  InnerQueue(Ref<device::Device> device, std::unique_ptr<device::Queue> queue)
      : device_(std::move(device)), queue_(std::move(queue)) {}
  Status run(device::Run run);
  Result<Ref<device::Buffer>> allocate(uint64_t bytes) const;

 private:
  const Ref<device::Device> device_;
  const std::unique_ptr<device::Queue> queue_;
  uint64_t value_ = 0;
};

class Work {
 public:
  Work(const Step& step, Position position, InnerQueue& inner, Schedule& schedule);
  // Not ok: the device has failed.
  Status begin();
  Status end();
  // The faults of a run's rows are told to its owner when the submission is over, not before.
  struct LateFaults {
    Ref<device::RowFaults> known, owner;
    void tell() const;
  };
  LateFaults take_faults() { return std::move(faults_); }

 private:
  enum class Moment : uint8_t { kBeginning, kEnd, kHalves, kShadow };
  void choose(Schedule& schedule);
  void take_from_host() const;
  Status begin_run(const device::Run& run);
  Status end_run(const device::Run& run);
  Status compute(const device::Run& run, const std::vector<device::View>& outputs);
  Status make_shadow(const device::Run& run);
  void begin_copy(const device::Copy& copy);
  void end_copy(const device::Copy& copy) const;

  const Step& step_;
  const Position position_;
  InnerQueue& inner_;
  Moment moment_ = Moment::kBeginning;
  bool skipped_ = false;              // a source of the run was wrong
  std::vector<device::View> shadow_;  // of the outputs, or of what a copy reads
  std::vector<std::byte> snapshot_;
  LateFaults faults_;
};

}  // namespace heddle::sim
