#include "runtime/memory/allocator.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>

#include "base/thread.h"
#include "base/yield.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {

namespace {

using device::MemoryKind;
using test::TestDevice;

struct AllocatorFixture {
  explicit AllocatorFixture(uint64_t memory_bytes = uint64_t{1} << 30, Options options = {})
      : device(std::make_shared<TestDevice>(test::TestOptions{.memory_bytes = memory_bytes})),
        allocator(*Allocator::make(device, options)) {}
  Ref<TestDevice> device;
  Ref<Allocator> allocator;
};

constexpr uint64_t kMiB = uint64_t{1} << 20;

}  // namespace

TEST_CASE("size classes grow, lose at most a quarter, and are closed under rounding") {
  uint64_t last = 0;
  for (uint64_t bytes = 1; bytes <= 4 * kMiB; bytes += 1 + bytes / 700) {
    const uint64_t size = Allocator::rounded(bytes);
    REQUIRE(size >= bytes);
    REQUIRE(size >= last);
    REQUIRE(size % 64 == 0);
    REQUIRE(size - bytes < std::max<uint64_t>(64, bytes / 4 + 1));
    REQUIRE(Allocator::rounded(size) == size);
    if (size <= size_class::kSmallMax) REQUIRE(size_class::index_of(size) < size_class::kClasses);
    last = size;
  }
  CHECK(Allocator::rounded(0) == 64);
  CHECK(Allocator::rounded(UINT64_MAX - 5) == UINT64_MAX);
}

TEST_CASE("every size class has an index of its own") {
  std::vector<uint64_t> size_at(size_class::kClasses, 0);
  for (uint64_t bytes = 1; bytes <= size_class::kSmallMax; ++bytes) {
    const uint64_t size = Allocator::rounded(bytes);
    uint64_t& known = size_at[size_class::index_of(size)];
    if (known != size) {
      REQUIRE(known == 0);
      known = size;
    }
  }
  for (const uint64_t size : size_at) CHECK(size != 0);
}

TEST_CASE("a freed block serves the next request of its class without the driver") {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{64}, uint64_t{5000}, kMiB, 3 * kMiB + 5}) {
    AllocatorFixture f;
    const void* memory = nullptr;
    {
      const auto buffer = *f.allocator->allocate(bytes);
      memory = buffer->host();
      CHECK(buffer->bytes() == bytes);
      CHECK(reinterpret_cast<uintptr_t>(memory) % 64 == 0);
      CHECK(f.allocator->stats().allocated == Allocator::rounded(bytes));
    }
    CHECK(f.allocator->stats().allocated == 0);
    CHECK(f.allocator->stats().cached == Allocator::rounded(bytes));
    const auto again = *f.allocator->allocate(bytes);
    CHECK(again->host() == memory);
    const auto stats = f.allocator->stats();
    CHECK(stats.hits == 1);
    CHECK(stats.misses == 1);
    CHECK(stats.recycled == 1);
    CHECK(stats.reserved == Allocator::rounded(bytes));
    CHECK(stats.peak_allocated == Allocator::rounded(bytes));
    CHECK(f.device->counts().allocations.load_relaxed() == 1);
  }
}

TEST_CASE("a large block serves only requests that waste at most an eighth of it") {
  AllocatorFixture f;
  f.allocator->allocate(16 * kMiB).value().reset();
  const auto small = *f.allocator->allocate(8 * kMiB);
  CHECK(f.allocator->stats().misses == 2);
  const auto near = *f.allocator->allocate(15 * kMiB);
  CHECK(f.allocator->stats().misses == 2);
  CHECK(f.allocator->stats().allocated == 24 * kMiB);
}

TEST_CASE("empty_cache gives everything back that is not in use") {
  AllocatorFixture f;
  const auto kept = *f.allocator->allocate(1000);
  for (const uint64_t bytes : {uint64_t{10}, uint64_t{2000}, 2 * kMiB})
    f.allocator->allocate(bytes).value().reset();
  CHECK(f.allocator->stats().cached > 2 * kMiB);
  f.allocator->empty_cache();
  const auto stats = f.allocator->stats();
  CHECK(stats.cached == 0);
  CHECK(stats.reserved == 1024);
  CHECK(stats.driver_frees == 3);
  CHECK(f.device->counts().memory_bytes.load_relaxed() == 1024);
}

// Cached blocks of 4 MiB; the watermarks are 32 and 16.
struct Watermarked : AllocatorFixture {
  explicit Watermarked(int blocks) : AllocatorFixture(64 * kMiB, options()) {
    std::vector<Ref<device::Buffer>> all;
    for (int i = 0; i < blocks; ++i) all.push_back(*allocator->allocate(4 * kMiB));
  }
  static Options options() {
    Options options;
    options.high_watermark = 0.5;
    options.low_watermark = 0.25;
    return options;
  }
};

TEST_CASE("beyond the high watermark cached blocks are freed down to the low one") {
  Watermarked f(7);
  CHECK(f.allocator->stats().reserved == 28 * kMiB);
  const auto next = *f.allocator->allocate(
      6 * kMiB);  // 34 MiB would be reserved, 32 are the high watermark, 16 the low one
  CHECK(f.allocator->stats().reserved <= 16 * kMiB);
  CHECK(f.allocator->stats().driver_frees == 5);
}

TEST_CASE("up to the high watermark cached blocks stay, also beyond the low one") {
  Watermarked f(5);
  const auto next = *f.allocator->allocate(12 * kMiB);
  CHECK(f.allocator->stats().reserved == 32 * kMiB);
  CHECK(f.allocator->stats().driver_frees == 0);
}

TEST_CASE("the watermarks follow the memory fraction") {
  Options options;
  options.high_watermark = 0.5;
  options.low_watermark = 0.25;
  AllocatorFixture f(64 * kMiB, options);
  REQUIRE(f.allocator->set_memory_fraction(0.5).ok());  // 16 MiB are the high watermark, 8 the low one
  {
    const auto a = *f.allocator->allocate(4 * kMiB), b = *f.allocator->allocate(4 * kMiB),
               c = *f.allocator->allocate(4 * kMiB);
  }
  const auto next = *f.allocator->allocate(6 * kMiB);
  CHECK(f.allocator->stats().reserved <= 8 * kMiB);
  CHECK(f.allocator->stats().driver_frees == 3);
}

TEST_CASE("at the limit cached blocks are freed first, then the request fails by name") {
  AllocatorFixture f(8 * kMiB);
  f.allocator->allocate(6 * kMiB).value().reset();
  const auto held = *f.allocator->allocate(5 * kMiB);  // fits only without the cached block
  CHECK(f.allocator->stats().reserved == 5 * kMiB);
  const auto refused = f.allocator->allocate(4 * kMiB);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().code() == Code::exhausted);
  for (const char* part :
       {"4194304 bytes", "5242880 in use", "0 cached", "limit 8388608", "memory fraction"}) {
    CHECK_MESSAGE(refused.status().message().find(part) != std::string::npos, refused.status().message());
  }
  CHECK(f.allocator->stats().failures == 1);
  CHECK(f.allocator->allocate(2 * kMiB).ok());
  CHECK(f.allocator->allocate(UINT64_MAX).status().code() == Code::exhausted);
}

TEST_CASE(
    "what another thread is giving back to the driver is waited for, before memory is said to be over") {
  AllocatorFixture f(8 * kMiB);
  f.allocator->allocate(6 * kMiB).value().reset();
  test::Latch latch;
  f.device->counts().frees.store_release(&latch);
  Thread freeing("freeing", [&] { f.allocator->empty_cache(); });
  test::wait_until([&] { return latch.arrived() == 1; });
  f.device->counts().frees.store_release(nullptr);
  Atomic<bool> over{false};
  Status status;
  Thread asking("asking", [&] {
    status = f.allocator->allocate(5 * kMiB).status();
    over.store_release(true);
  });
  // Enough for a thread that does not wait.
  for (int i = 0; i < 10'000 && !over.load_acquire(); ++i) give_way();
  CHECK_FALSE(over.load_acquire());
  latch.open();
  freeing.join();
  asking.join();
  CHECK_MESSAGE(status.ok(), to_string(status));
  CHECK(f.allocator->stats().pressure_calls == 0);
}

TEST_CASE("the memory fraction bounds what is reserved") {
  AllocatorFixture f(64 * kMiB);
  for (const double wrong : {0.0, -1.0, 1.5})
    CHECK(f.allocator->set_memory_fraction(wrong).code() == Code::invalid);
  REQUIRE(f.allocator->set_memory_fraction(0.125).ok());
  CHECK(f.allocator->limit() == 8 * kMiB);
  CHECK(f.allocator->allocate(9 * kMiB).status().code() == Code::exhausted);
}

TEST_CASE("watermarks are from nothing to everything, the low one no higher than the high one") {
  AllocatorFixture f(64 * kMiB);
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  struct Case {
    double low, high;
    bool ok;
  };
  for (const Case& each : {Case{0, 0, true},
                           {0, 1, true},
                           {0.5, 0.5, true},
                           {1, 1, true},
                           {0.9, 0.8, false},
                           {-0.1, 0.8, false},
                           {0.5, 1.1, false},
                           {-0.2, -0.1, false},
                           {1.1, 1.2, false},
                           {kNone, 0.8, false},
                           {0.5, kNone, false}}) {
    CAPTURE(each.low);
    CAPTURE(each.high);
    Options options;
    options.low_watermark = each.low;
    options.high_watermark = each.high;
    CHECK(Allocator::make(f.device, options).ok() == each.ok);
  }
}

TEST_CASE(
    "staging memory has a limit, watermarks and statistics of its own, and takes nothing from the device") {
  const auto device = std::make_shared<TestDevice>(
      test::TestOptions{.unified = false, .memory_bytes = 4 * kMiB, .staging_bytes = 2 * kMiB});
  const Ref<Allocator> allocator = *Allocator::make(device, {});
  const auto bytes = [&](uint64_t size, MemoryKind kind) { return allocator->allocate(size, kind); };
  {
    const auto staging = bytes(2 * kMiB, MemoryKind::staging), all = bytes(4 * kMiB, MemoryKind::device);
    REQUIRE_MESSAGE(staging.ok(), to_string(staging.status()));
    REQUIRE_MESSAGE(all.ok(), to_string(all.status()));
    const Status host_full = bytes(64, MemoryKind::staging).status(),
                 device_full = bytes(64, MemoryKind::device).status();
    CHECK(host_full.code() == Code::exhausted);
    CHECK_MESSAGE(host_full.message().find("staging memory more: 2097152 in use") != std::string::npos,
                  host_full.message());
    CHECK(device_full.code() == Code::exhausted);
    CHECK_MESSAGE(device_full.message().find("bytes more: 4194304 in use") != std::string::npos,
                  device_full.message());
    const Allocator::Stats stats = allocator->stats();
    CHECK(stats.allocated == 4 * kMiB);
    CHECK(stats.reserved == 4 * kMiB);
    CHECK(stats.limit == 4 * kMiB);
    CHECK(stats.staging.allocated == 2 * kMiB);
    CHECK(stats.staging.reserved == 2 * kMiB);
    CHECK(stats.staging.limit == 2 * kMiB);
  }
  const Allocator::Stats idle = allocator->stats();
  CHECK(idle.cached == 4 * kMiB);
  CHECK(idle.staging.cached == 2 * kMiB);
  // One kind's cache does not make room for the other: it is not asked.
  const auto small = bytes(64, MemoryKind::staging);
  REQUIRE(small.ok());
  CHECK(allocator->stats().cached == 4 * kMiB);
  CHECK(allocator->stats().staging.cached == 0);
  REQUIRE(allocator->set_memory_fraction(0.5).ok());
  CHECK(allocator->limit() == 2 * kMiB);
  CHECK(allocator->limit(MemoryKind::staging) == kMiB);
  allocator->empty_cache();
  CHECK(allocator->stats().reserved == 0);
  CHECK(allocator->stats().staging.reserved == 64);
}

TEST_CASE("peaks that are reset begin with what each kind of memory has then") {
  const auto device = std::make_shared<TestDevice>(
      test::TestOptions{.unified = false, .memory_bytes = 8 * kMiB, .staging_bytes = 8 * kMiB});
  const Ref<Allocator> allocator = *Allocator::make(device, {});
  const auto bytes = [&](uint64_t size, MemoryKind kind) { return *allocator->allocate(size, kind); };
  const auto staging = bytes(kMiB, MemoryKind::staging), held = bytes(3 * kMiB, MemoryKind::device);
  bytes(2 * kMiB, MemoryKind::staging).reset();
  bytes(2 * kMiB, MemoryKind::device).reset();
  CHECK(allocator->stats().peak_allocated == 5 * kMiB);
  CHECK(allocator->stats().staging.peak_allocated == 3 * kMiB);
  allocator->reset_peaks();
  CHECK(allocator->stats().peak_allocated == 3 * kMiB);
  CHECK(allocator->stats().staging.peak_allocated == kMiB);
}

TEST_CASE("a request that would just have fitted without what others took meanwhile asks again") {
  AllocatorFixture f(8 * kMiB);
  const Ref<device::Buffer> held = *f.allocator->allocate(3 * kMiB);
  Ref<device::Buffer> droppable = *f.allocator->allocate(5 * kMiB), others;
  int asked = 0;
  f.allocator->on_pressure([&](uint64_t) {
    droppable.reset();
    others.reset();
    f.allocator->empty_cache();
    if (++asked == 1) others = *f.allocator->allocate(kMiB);
  });
  CHECK(f.allocator->allocate(5 * kMiB).ok());
  CHECK(asked == 2);
}

TEST_CASE("pressure callbacks run with no lock held, may free memory, and then the request is served") {
  AllocatorFixture f(8 * kMiB);
  Ref<device::Buffer> droppable = *f.allocator->allocate(6 * kMiB);
  uint64_t asked = 0;
  f.allocator->on_pressure([&](uint64_t bytes) {
    const NoLocksHeld checked;
    static_cast<void>(checked);
    asked = bytes;
    droppable.reset();
    f.allocator->empty_cache();
    static_cast<void>(f.allocator->stats());
  });
  const auto served = f.allocator->allocate(4 * kMiB);
  CHECK(served.ok());
  CHECK(asked == 4 * kMiB);
  CHECK(f.allocator->stats().pressure_calls == 1);
  CHECK_FALSE(f.allocator->allocate(6 * kMiB).ok());
  CHECK(f.allocator->stats().pressure_calls == 2);
}

TEST_CASE(
    "a driver without memory is asked again after the caches are empty, and its refusal is not remembered") {
  AllocatorFixture f;
  f.allocator->allocate(kMiB).value().reset();
  f.device->refuse_memory(true);
  CHECK(f.allocator->allocate(100).status().code() == Code::exhausted);
  CHECK(f.allocator->stats().reserved == 0);
  f.device->refuse_memory(false);
  CHECK(f.allocator->allocate(100).ok());
}

TEST_CASE("warm threads share no lock and call no driver, and keep their own bytes") {
  AllocatorFixture f;
  constexpr int kThreads = std::min<int>(8, Allocator::kStripes), kRounds = 3000;  // a stripe for each
  Atomic<uint64_t> wrong{0};
  const auto work = [&](int thread) {
    for (int i = 0; i < kRounds; ++i) {
      const uint64_t bytes = 64 + 64 * static_cast<uint64_t>((i + thread) % 5);
      const auto a = *f.allocator->allocate(bytes), b = *f.allocator->allocate(bytes);
      std::memset(a->host(), thread, bytes);
      std::memset(b->host(), thread + 100, bytes);
      if (a->host()[bytes - 1] != std::byte(thread) || b->host()[0] != std::byte(thread + 100))
        wrong.add_relaxed(1);
    }
  };
  clear_lock_counts();
  set_lock_counting(true);
  run_together(kThreads, work);
  set_lock_counting(false);
  CHECK(read_lock_counts()[static_cast<size_t>(Rank::kAllocator)].contentions == 0);
  CHECK(wrong.load_relaxed() == 0);
  const auto stats = f.allocator->stats();
  CHECK(stats.allocated == 0);
  CHECK(stats.hits + stats.misses == 2 * kThreads * kRounds);
  CHECK(stats.recycled == 2 * kThreads * kRounds);
  CHECK(stats.misses == f.device->counts().allocations.load_relaxed());
  CHECK(stats.misses < kThreads * kRounds / 10);
}

TEST_CASE("threads that take and give back large blocks keep their own bytes, and share what is there") {
  AllocatorFixture f;
  constexpr int kThreads = 4, kRounds = 500;
  Atomic<uint64_t> wrong{0};
  run_together(kThreads, [&](int thread) {
    for (int i = 0; i < kRounds; ++i) {
      const uint64_t bytes = 2 * kMiB + kMiB * static_cast<uint64_t>((i + thread) % 3);
      const auto mine = *f.allocator->allocate(bytes);
      for (const uint64_t at : {uint64_t{0}, bytes - 1}) mine->host()[at] = std::byte(thread + 1);
      yield_point("keeps it");
      for (const uint64_t at : {uint64_t{0}, bytes - 1})
        wrong.add_relaxed(mine->host()[at] == std::byte(thread + 1) ? 0 : 1);
    }
  });
  CHECK(wrong.load_relaxed() == 0);
  const auto stats = f.allocator->stats();
  CHECK(stats.allocated == 0);
  CHECK(stats.hits + stats.misses == kThreads * kRounds);
  CHECK(stats.recycled == kThreads * kRounds);
  CHECK(stats.misses <= 3 * kThreads);  // of each size no more than there are threads
}

TEST_CASE("blocks freed by another thread than the one that asks are found again") {
  AllocatorFixture f;
  constexpr size_t kBuffers = 5000, kAhead = 16;
  Guarded<std::deque<Ref<device::Buffer>>, Rank::kHelpers> handed_over;
  run_together(2, [&](int thread) {
    for (size_t i = 0; i < kBuffers; ++i) {
      Ref<device::Buffer> buffer = thread == 0 ? f.allocator->allocate(5000).value() : nullptr;
      auto queue = handed_over.lock();
      queue.wait([&] { return thread == 0 ? queue->size() < kAhead : !queue->empty(); });
      if (thread == 0) {
        queue->push_back(std::move(buffer));
      } else {
        buffer = std::move(queue->front());
        queue->pop_front();
      }
      handed_over.notify_one();
    }
  });
  CHECK(f.device->counts().allocations.load_relaxed() < 200);
  CHECK(f.allocator->stats().allocated == 0);
  f.allocator->empty_cache();  // both threads have ended, and keep none
  CHECK(f.device->counts().memory_bytes.load_relaxed() == 0);
}

TEST_CASE("out of memory in one thread leaves seven others working and right") {
  AllocatorFixture f(16 * kMiB);
  Atomic<uint64_t> failed{0}, wrong{0}, served{0};
  run_together(8, [&](int thread) {
    for (int i = 0; i < 500; ++i) {
      if (thread == 0) {
        const auto refused = f.allocator->allocate(64 * kMiB);
        if (refused.status().code() == Code::exhausted) failed.add_relaxed(1);
        continue;
      }
      const auto buffer = f.allocator->allocate(100'000);
      if (!buffer.ok()) continue;
      std::memset((*buffer)->host(), thread, 100'000);
      if ((*buffer)->host()[99'999] != std::byte(thread)) wrong.add_relaxed(1);
      served.add_relaxed(1);
    }
  });
  CHECK(failed.load_relaxed() == 500);
  CHECK(served.load_relaxed() == 7 * 500);
  CHECK(wrong.load_relaxed() == 0);
  CHECK(f.allocator->stats().allocated == 0);
}

TEST_CASE("buffers may outlive the maker of the allocator, and nothing is lost") {
  const auto counts = std::make_shared<test::Counts>();
  Ref<device::Buffer> kept;
  {
    const auto device = std::make_shared<TestDevice>(test::TestOptions{}, counts);
    const auto allocator = *Allocator::make(device, {});
    kept = *allocator->allocate(100);
    allocator->allocate(200).value().reset();
  }
  std::memset(kept->host(), 1, 100);
  kept.reset();
  CHECK(counts->nothing_lives());
}

}  // namespace heddle::runtime
