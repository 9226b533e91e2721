// allocator.h: device memory that is used again. Why was my buffer not reused? Because a submission may still
// touch it.
//
//   What       All memory of a runtime, of both kinds: tensors, slots, weights. Sizes are rounded
//              to classes: steps of 64 B to 1 KiB, then four classes per doubling to 1 MiB (at most 25 %
//              lost), above that multiples of 64 KiB. A freed block is kept for the next
//              request of its class; a large one also serves a request that it exceeds by at most an eighth.
//   Kinds      Memory of the device and staging memory have limits, watermarks and statistics of their own:
//              what is the host's takes nothing from the device. With unified memory there is one kind.
//   Invariant  A block is reused, or freed, only when every submission that may touch it is over. What is
//              reserved of a kind never passes its limit.
//   Pressure   Beyond the high watermark cached blocks are freed down to the low one. At the limit, or when
//              the driver has no memory: all cached blocks are freed, then the callbacks run (Pressure; they
//              may call empty_cache() or drop buffers), then one more try, then `exhausted` (Relief says when
//              not yet). What other threads are giving back to the driver meanwhile, or are about to, is
//              waited for.
//   Threads    Any. Small blocks are cached in stripes: a thread that finds its stripe busy takes the next
//              and does not wait. Of more than kStripes threads several begin at the same stripe.
//   Memory     What comes back needs none of the host's. Without any it goes to the driver, or its uses are
//              waited for, by the thread that lets go of it.
//   Blocks     As long as the driver's allocate and free, which run with no lock held; at the limit also
//              those of other threads. A cache hit calls no driver.
//   Lifetime   Buffers keep it, and it keeps the device. Each stripe has a reference of its own to it, which
//              its buffers share, so that threads count on lines of their own. The end of the last reference
//              that make() gave ends those.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/spin_guarded.h"
#include "device/device.h"
#include "runtime/memory/pressure.h"
#include "runtime/memory/size_class.h"
#include "runtime/options.h"

namespace heddle::runtime {

class Allocator final : public device::Recycler,
                        public device::Source,
                        public std::enable_shared_from_this<Allocator> {
 public:
  static Result<Ref<Allocator>> make(Ref<device::Device> device, const Options& options);
  ~Allocator() override;

  using Source::allocate;
  enum class Callbacks : bool { no, yes };
  // 0 bytes is fine.
  Result<Ref<device::Buffer>> allocate(uint64_t bytes, device::MemoryKind kind) override {
    return allocate(bytes, kind, Callbacks::yes);
  }
  // Without callbacks for those who hold what a callback may wait for: exhausted sooner.
  Result<Ref<device::Buffer>> allocate(uint64_t bytes, device::MemoryKind kind, Callbacks callbacks);
  Result<Ref<const void>> charge(uint64_t bytes) override { return charge(bytes, Callbacks::yes); }
  Result<Ref<const void>> charge(uint64_t bytes, Callbacks callbacks);
  void recycle(std::unique_ptr<device::Memory> memory, std::vector<device::Point> uses) noexcept override;
  // Frees every cached block whose uses are over, and what hoard() says can be given up.
  void empty_cache();
  // Once, before the first allocation. Called with no lock held, by one thread at a time, others wait for it:
  // it asks for no device memory, and waits for nobody who may. What it returns is let go of after that.
  using LetGo = std::vector<Ref<const void>>;
  void hoard(std::function<LetGo()> give_up) { give_up_ = std::move(give_up); }
  void reap_pending();  // moves freed blocks whose uses are over to the cache

  Status set_memory_fraction(double fraction);  // of what the device says; what is in use stays
  uint64_t limit(device::MemoryKind kind = device::MemoryKind::device) const {
    return of(kind).limit.load_relaxed();
  }

  void on_pressure(Pressure::Callback callback) { pressure_.add(std::move(callback)); }

  // What may help a refused request: the callbacks. What they free, other threads may take first, so that a
  // request which would have fitted may ask again.
  class Relief {
   public:
    explicit Relief(Allocator& of, device::MemoryKind kind = device::MemoryKind::device)
        : of_(of), kind_(kind) {}
    // Runs them; the caller holds nothing that one may wait for. False: another try would find no more.
    bool ask(uint64_t bytes);

   private:
    static constexpr int kMost = 8;
    bool would_have_fitted(uint64_t bytes) const;

    Allocator& of_;
    const device::MemoryKind kind_;
    int asked_ = 0;
    bool had_callbacks_ = false;
    uint64_t given_ = 0;  // by of_, before they ran
  };

  struct KindStats {
    uint64_t allocated = 0;  // in use by buffers, rounded to classes
    uint64_t cached = 0;     // kept for reuse
    uint64_t pending = 0;    // freed, but a submission may still touch it
    uint64_t reserved = 0;   // taken from the driver: the sum of the three, and what is on its way
    uint64_t limit = 0;
    uint64_t peak_reserved = 0;
    uint64_t peak_allocated = 0;  // as seen when the driver was asked, a large block was given, or here
  };
  struct Stats : KindStats {  // of the device's memory; with unified memory that is all
    KindStats staging;
    // Of both kinds.
    uint64_t hits = 0, misses = 0, recycled = 0, driver_frees = 0, failures = 0, pressure_calls = 0;
  };
  Stats stats() const;
  void reset_peaks();

  static uint64_t rounded(uint64_t bytes);  // what a request takes; saturates
#if defined(HEDDLE_SIM)
  static constexpr size_t kStripes = 2;  // so that who looks at all of them takes few steps
#else
  static constexpr size_t kStripes = 32;
#endif

 private:
  using Block = std::unique_ptr<device::Memory>;
  static constexpr size_t kKinds = 2;
  struct Want {
    uint64_t size;  // rounded
    device::MemoryKind kind;
  };
  struct Tally {
    // Given less taken back through this part: the sum over all parts means something, one alone does not.
    int64_t allocated = 0;
    uint64_t cached = 0, given = 0;
    void give(uint64_t bytes) {
      allocated += static_cast<int64_t>(bytes);
      given += bytes;
    }
  };
  template <class T>
  struct PerKind : std::array<T, kKinds> {
    T& operator[](device::MemoryKind kind) { return this->data()[static_cast<size_t>(kind)]; }
    const T& operator[](device::MemoryKind kind) const { return this->data()[static_cast<size_t>(kind)]; }
  };
  struct Stripe {
    std::array<std::vector<Block>, kKinds * size_class::kClasses> blocks;
    PerKind<Tally> tally;
    uint64_t hits = 0, recycled = 0;
    Ref<device::Recycler> keeper;
  };
  struct alignas(64) PaddedStripe {
    SpinGuarded<Stripe, Rank::kAllocator> data;
  };
  struct Large {
    PerKind<std::multimap<uint64_t, Block>> blocks;
    PerKind<Tally> tally;
    uint64_t hits = 0, recycled = 0;
  };
  struct Pending {
    Block block;
    std::vector<device::Point> uses;
  };
  struct Waiting {
    std::vector<Pending> blocks;
    PerKind<uint64_t> bytes{};
  };
  struct Kind {
    uint64_t memory_bytes = 0;          // as the device says
    Atomic<uint64_t> limit{0};          // a setting: orders nothing
    Atomic<uint64_t> reserved{0};       // grows before the driver is asked, shrinks after it was given back
    Atomic<uint64_t> peak_reserved{0};  // statistics, as is this
    Atomic<uint64_t> peak_allocated{0};
  };

  Allocator(Ref<device::Device> device, const Options& options);
  Kind& of(device::MemoryKind kind) const { return kinds_[kind]; }
  struct Found {
    Block block;                   // null: nothing
    Ref<device::Recycler> keeper;  // null: any will do
  };
  Found take_cached(Want want);
  Found take_small(Want want);
  Found take_large(Want want);
  Result<Found> take_new(Want want, Callbacks callbacks);
  Result<Block> take_from_driver(Want want);
  // take() until it is not exhausted, or nothing more can be done: the ladder that the head describes.
  template <class Take>
  auto take_under_pressure(Want want, Callbacks callbacks, Take&& take) -> decltype(take());
  // With the cache emptied, and with what other threads are moving out of it waited for.
  template <class Take>
  auto take_emptied(Take&& take) -> decltype(take());
  void give_up();
  void give_up_cache_for(Want want);
  void arrived(uint64_t bytes);  // what was moving
  bool reserve(Want want);
  void keep(Block block, bool was_allocated) noexcept;
  bool try_keep(Block& block,
                bool was_allocated) noexcept;  // false: the host has no memory to remember it by
  bool try_wait_in_line(Block& block, const std::vector<device::Point>& uses) noexcept;  // likewise
  void free_cached_down_to(device::MemoryKind kind, uint64_t reserved_bytes);
  // Up to kAtOnce blocks, which need no memory of the host on their way; how many.
  static constexpr size_t kAtOnce = 64;
  size_t reap_some();
  size_t free_some_cached(device::MemoryKind kind, uint64_t reserved_bytes);
  void wait_for_pending();
  template <class Use>
  void with_stripe(Use&& use);
  void count_given(Want want);
  void count_taken_back(Want want);
  Stats sum() const;                              // what the parts count
  uint64_t given(device::MemoryKind kind) const;  // bytes, in all requests so far
  Status exhausted(Want asked, const Status& why) const;
  void note_peak(device::MemoryKind kind);

  const Ref<device::Device> device_;
  const bool unified_;
  const double high_watermark_, low_watermark_;
  const uint32_t generation_;  // fork_generation() of the maker
  mutable PerKind<Kind> kinds_;
  // Bytes that a thread has taken out of a list and not yet given to the driver or to another list. Added
  // under the list's lock, or before pending_count_ goes down: who looks for memory there finds it, or this.
  Atomic<uint64_t> moving_{0};
  // How often some of them arrived. Read with acquire before a thread looks for them: `reserved`, which it
  // reads relaxed, is then no older.
  Atomic<uint64_t> arrivals_{0};
  Atomic<uint64_t> misses_{0}, driver_frees_{0}, failures_{0};
  // How many blocks wait; spares the lock when none does. Subtracted with release, after moving_ was added
  // to. Who frees adds to it and then reads how far the uses are; a use's end is written, and then who reaps
  // reads it. All four are seq_cst, so they cannot both miss each other.
  Atomic<uint64_t> pending_count_{0};
  mutable std::array<PaddedStripe, kStripes> stripes_;
  mutable Guarded<Large, Rank::kAllocator> large_;
  mutable Guarded<Waiting, Rank::kAllocator> pending_;
  Pressure pressure_;
  std::function<LetGo()> give_up_ = [] { return LetGo(); };
  // A thread is inside give_up_: taken by compare-and-swap (acquire), given back with release. What it gives
  // up is in the lists, or in moving_, before the next one looks for it.
  Atomic<uint32_t> giving_up_{0};
};

}  // namespace heddle::runtime
