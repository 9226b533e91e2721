// What the allocator does with memory of the device while the host has none: it comes back, nothing
// ends the process, and nobody waits for what will not come.
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "device/completing_queue_fixture.h"
#include "runtime/memory/allocator.h"
#include "runtime/test_device_fixture.h"
#include "tests/host_runtime/out_of_memory_fixture.h"

namespace heddle::runtime {
namespace {

using device::Buffer;
using device::CompletingQueue;
using heddle::test::fails_in;

constexpr int kBlocks = 150;

struct PoorAllocator {
  Ref<test::TestDevice> device = std::make_shared<test::TestDevice>(test::TestOptions{});
  Ref<Allocator> allocator = *Allocator::make(device, {});
  std::vector<Ref<Buffer>> blocks() const {
    std::vector<Ref<Buffer>> made;
    for (int i = 0; i < kBlocks; ++i) made.push_back(*allocator->allocate(i % 2 == 0 ? 1024 : 4 << 20));
    return made;
  }
  void check_all_came_back() const {
    const auto stats = allocator->stats();
    CHECK(stats.pending == 0);
    CHECK(stats.allocated == 0);
    CHECK(stats.reserved == stats.cached);
  }
};

TEST_CASE("memory whose uses are over comes back without memory of the host") {
  const PoorAllocator poor;
  CompletingQueue queue;
  auto blocks = poor.blocks();
  for (const auto& each : blocks) each->mark_write(queue.point(1));
  blocks.clear();
  CHECK(poor.allocator->stats().pending > 0);
  queue.advance(1);
  fails_in = -1;
  poor.allocator->reap_pending();
  fails_in = 0;
  poor.check_all_came_back();
}

TEST_CASE("cached memory goes back to the driver without memory of the host and nobody waits for it") {
  const PoorAllocator poor;
  poor.blocks().clear();
  CHECK(poor.allocator->stats().cached > 0);
  fails_in = -1;
  poor.allocator->empty_cache();
  fails_in = 0;
  CHECK(poor.allocator->stats().reserved == 0);
  CHECK(poor.allocator->allocate(4 << 20).ok());
}

// Ends when somebody is about to sleep for it.
class EndsWhenWatched final : public device::Timeline {
 public:
  explicit EndsWhenWatched(device::Completion key) : key_(key) {}
  void watch(uint64_t value) override { advance(value, key_); }

 private:
  const device::Completion key_;
};
struct Key : device::Queue {
  static device::Completion key() { return completion(); }
};

TEST_CASE("a block whose use ends while it is put in line comes back whichever allocation fails") {
  for (int64_t n = 1, failed = 1; failed != 0; ++n) {
    CAPTURE(n);
    const PoorAllocator poor;
    auto buffer = *poor.allocator->allocate(1024);
    buffer->mark_write({std::make_shared<EndsWhenWatched>(Key::key()), 1});
    fails_in = n;
    buffer = nullptr;
    failed = fails_in <= 0;
    fails_in = 0;
    poor.check_all_came_back();
  }
}

TEST_CASE("memory beyond a limit that was lowered goes back without memory of the host") {
  const PoorAllocator poor;
  poor.blocks().clear();  // from here on there is room in the lists of what is cached
  auto blocks = poor.blocks();
  REQUIRE(poor.allocator->set_memory_fraction(1e-9).ok());
  fails_in = -1;
  while (!blocks.empty()) blocks.pop_back();
  fails_in = 0;
  const auto stats = poor.allocator->stats();
  CHECK(stats.allocated == 0);
  CHECK(stats.cached == stats.reserved);
  CHECK(stats.reserved <= stats.limit);
}

}  // namespace
}  // namespace heddle::runtime
