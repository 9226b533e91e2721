// memory.h: memory of the simulated device, in two kinds.
//
//   What       A Block is the bytes behind one Memory. Programs compute with memory of the wrapped device;
//              the host is never given its address, but one with a tag that faults when it is dereferenced.
//              Staging memory has a second copy, which is what the host sees: the device takes bytes from it
//              when a command begins, and shows its own when the completion is told. So a host that reads too
//              early reads poison.
//   Threads    `log` and the counts: under the event loop's lock. The rest: the event loop's thread.
//   Lifetime   A Block outlives its Memory while a submission names it, so that what is freed too early is a
//              finding and no crash.
#pragma once

#include <utility>
#include <vector>

#include "device/device.h"
#include "drivers/sim/hazards.h"

namespace heddle::sim {

class EventLoop;

constexpr uint64_t kAddressTag = uint64_t{1} << 62;
constexpr int kPoison = 0xdb;

struct Block {
  Block(Ref<device::Buffer> device_bytes, Ref<device::Buffer> host_bytes)
      : bytes(std::move(device_bytes)), hosts(std::move(host_bytes)) {}

  uint64_t address() const { return bytes->address() | kAddressTag; }
  // Takes the host's bytes of `range`, but for those that the device has written and not shown.
  void take_from_host(Bytes range) const;
  // What the position writes there is not the host's to see yet: poisoned until show_host().
  void hide_from_host(Bytes range, Position writer);
  void show_host(Position writer);
  // The writer failed: what the host sees there stays undefined, and what it writes there next is taken.
  void forget_hidden(Position writer);

  const Ref<device::Buffer> bytes;  // of the wrapped device
  const Ref<device::Buffer> hosts;  // staging memory only
  struct Hidden {
    Bytes range;
    Position writer;
    bool by(Position other) const { return writer.queue == other.queue && writer.pass == other.pass; }
  };
  std::vector<Hidden> hidden;

  AccessLog log;
  int in_flight = 0;  // submissions that name it and are not over
  int writers = 0;    // of those, the ones that write it
};

class SimMemory final : public device::Memory {
 public:
  SimMemory(const void* maker, device::MemoryKind kind, Ref<Block> block, Ref<EventLoop> loop);
  ~SimMemory() override;
  const Ref<Block>& block() const { return block_; }

 private:
  const Ref<Block> block_;
  const Ref<EventLoop> loop_;
};

}  // namespace heddle::sim
