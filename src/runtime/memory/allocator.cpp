#include "runtime/memory/allocator.h"

#include <algorithm>
#include <bit>
#include <new>

#include "base/fork.h"
#include "base/own_count.h"
#include "runtime/memory/size_class.h"
#include "runtime/thread_number.h"

namespace heddle::runtime {

using device::Memory;
using device::MemoryKind;
using device::Point;

namespace {

bool over(const std::vector<Point>& uses) {
  return std::all_of(uses.begin(), uses.end(), [](const Point& use) {
    return use.done() || use.timeline->failed();
  });  // a failed queue touches nothing more
}

size_t place_of(uint64_t size, MemoryKind kind) {
  return static_cast<size_t>(kind) * size_class::kClasses + size_class::index_of(size);
}

uint64_t share_of(uint64_t whole, double part) {
  return static_cast<uint64_t>(static_cast<double>(whole) * part);
}

void wait_for(const std::vector<Point>& points, Deadline deadline) {
  for (const Point& point : points) static_cast<void>(point.timeline->wait(point.value, deadline));
}

Status failure_of(const Status& taken) { return taken; }
template <class T>
Status failure_of(const Result<T>& taken) {
  return taken.ok() ? Status() : taken.status();
}

}  // namespace

Result<Ref<Allocator>> Allocator::make(Ref<device::Device> device, const Options& options) {
  const double high = options.high_watermark, low = options.low_watermark;
  if (!(low >= 0 && low <= high && high <= 1)) {
    return Status::invalid("the watermarks are low ", low, " and high ", high,
                           "; they must be 0 <= low <= high <= 1");
  }
  Ref<Allocator> allocator(new Allocator(std::move(device), options));
  HEDDLE_TRY(allocator->set_memory_fraction(options.memory_fraction));
  for (PaddedStripe& stripe : allocator->stripes_)
    stripe.data.lock()->keeper = own_count<device::Recycler>(allocator);
  return Ref<Allocator>(allocator.get(), [allocator](Allocator*) {
    for (PaddedStripe& stripe : allocator->stripes_) {
      const Ref<device::Recycler> ended = std::move(stripe.data.lock()->keeper);
    }
  });
}

Allocator::Allocator(Ref<device::Device> device, const Options& options)
    : device_(std::move(device)),
      unified_(device_->traits().unified_memory),
      high_watermark_(options.high_watermark),
      low_watermark_(options.low_watermark),
      generation_(fork_generation()) {
  of(MemoryKind::device).memory_bytes = device_->traits().memory_bytes;
  of(MemoryKind::staging).memory_bytes = device_->traits().staging_bytes;
}

Allocator::~Allocator() = default;

Status Allocator::set_memory_fraction(double fraction) {
  if (!(fraction > 0 && fraction <= 1)) {
    return Status::invalid("the memory fraction is ", fraction, "; it must be above 0 and at most 1");
  }
  // A device that does not say how much it has is limited by its own refusals.
  for (Kind& kind : kinds_) {
    kind.limit.store_relaxed(kind.memory_bytes == 0 ? UINT64_MAX
                             : fraction == 1        ? kind.memory_bytes
                                                    : share_of(kind.memory_bytes, fraction));
  }
  return {};
}

uint64_t Allocator::rounded(uint64_t bytes) { return size_class::rounded(bytes); }

Result<Ref<device::Buffer>> Allocator::allocate(uint64_t bytes, MemoryKind kind, Callbacks callbacks) {
  const Want want{size_class::rounded(bytes), unified_ ? MemoryKind::device : kind};
  Found found = take_cached(want);
  if (found.block == nullptr) [[unlikely]] {
    auto fresh = take_new(want, callbacks);
    if (!fresh.ok()) {
      if (callbacks == Callbacks::yes) failures_.add_relaxed(1);
      return fresh.status();
    }
    found = std::move(fresh).value();
  }
  if (found.keeper == nullptr) found.keeper = shared_from_this();
  // Where the host has no memory for the Buffer, the block is still ours, and goes back.
  struct Untaken {
    Allocator& allocator;
    Block& block;
    ~Untaken() {
      if (block != nullptr) allocator.keep(std::move(block), true);
    }
  } const untaken{*this, found.block};
  return std::make_shared<device::Buffer>(std::move(found.block), bytes, std::move(found.keeper));
}

Result<Ref<const void>> Allocator::charge(uint64_t bytes, Callbacks callbacks) {
  const Want want{bytes, MemoryKind::device};
  const Status status = take_under_pressure(
      want, callbacks, [&] { return reserve(want) ? Status() : Status::exhausted("the limit is reached"); });
  if (!status.ok()) {
    if (callbacks == Callbacks::yes) failures_.add_relaxed(1);
    return status;
  }
  count_given(want);
  return Ref<const void>(this, [kept = shared_from_this(), want](const void*) {
    if (fork_generation() != kept->generation_) return;
    kept->count_taken_back(want);
    kept->of(want.kind).reserved.sub_relaxed(want.size);
  });
}

Allocator::Found Allocator::take_cached(Want want) {
  return want.size <= size_class::kSmallMax ? take_small(want) : take_large(want);
}

Allocator::Found Allocator::take_small(Want want) {
  const size_t index = place_of(want.size, want.kind);
  const size_t first = this_thread_stripe(kStripes);
  for (size_t i = 0; i < kStripes; ++i) {
    auto stripe = stripes_[(first + i) % kStripes].data.try_lock();
    if (!stripe.has_value()) continue;
    std::vector<Block>& blocks = (*stripe)->blocks[index];
    if (blocks.empty()) continue;
    Found found{std::move(blocks.back()), (*stripe)->keeper};
    blocks.pop_back();
    seam::did("allocator.take_cached");
    Tally& tally = (*stripe)->tally[want.kind];
    tally.cached -= want.size;
    tally.give(want.size);
    ++(*stripe)->hits;
    return found;
  }
  return {};
}

Allocator::Found Allocator::take_large(Want want) {
  auto large = large_.lock();
  std::multimap<uint64_t, Block>& blocks = large->blocks[want.kind];
  const auto found = blocks.lower_bound(want.size);
  if (found == blocks.end() || found->first - want.size > want.size / 8) return {};
  Block block = std::move(found->second);
  blocks.erase(found);
  seam::did("allocator.take_cached");
  large->tally[want.kind].cached -= block->bytes();
  large->tally[want.kind].give(block->bytes());
  ++large->hits;
  return {std::move(block), nullptr};
}

Result<Allocator::Found> Allocator::take_new(Want want, Callbacks callbacks) {
  reap_pending();
  if (Found found = take_cached(want); found.block != nullptr) return found;
  misses_.add_relaxed(1);
  auto block = take_under_pressure(want, callbacks, [&] { return take_from_driver(want); });
  if (!block.ok()) return block.status();
  count_given({(*block)->bytes(), want.kind});
  note_peak(want.kind);
  return Found{std::move(block).value(), nullptr};
}

template <class Take>
auto Allocator::take_under_pressure(Want want, Callbacks callbacks, Take&& take) -> decltype(take()) {
  give_up_cache_for(want);
  auto taken = take();
  if (failure_of(taken).code() == Code::exhausted) taken = take_emptied(take);
  Relief relief(*this, want.kind);
  while (failure_of(taken).code() == Code::exhausted && callbacks == Callbacks::yes && relief.ask(want.size))
    taken = take_emptied(take);
  if (failure_of(taken).code() == Code::exhausted) return exhausted(want, failure_of(taken));
  return taken;
}

bool Allocator::Relief::ask(uint64_t bytes) {
  const bool first = asked_++ == 0;
  if (asked_ > kMost || (!first && !(had_callbacks_ && would_have_fitted(bytes)))) return false;
  given_ = of_.given(kind_);
  had_callbacks_ = of_.pressure_.call(bytes);
  of_.pressure_.wait_for_others();
  if (first) of_.wait_for_pending();
  return true;
}

// Had nobody got memory since the callbacks began, which they do for themselves, too.
bool Allocator::Relief::would_have_fitted(uint64_t bytes) const {
  const uint64_t given = of_.given(kind_) - given_, reserved = of_.of(kind_).reserved.load_relaxed();
  const uint64_t limit = of_.limit(kind_);
  return given > 0 && bytes <= limit && reserved - std::min(reserved, given) <= limit - bytes;
}

// Another thread may have what this one looks for, between two lists or on its way to the driver: that is
// waited for, and what arrived meanwhile is worth another try.
template <class Take>
auto Allocator::take_emptied(Take&& take) -> decltype(take()) {
  for (;;) {
    const uint64_t arrivals = arrivals_.load_acquire();
    seam::did("allocator.see_arrivals");
    empty_cache();
    auto taken = take();
    if (failure_of(taken).code() != Code::exhausted) return taken;
    const uint64_t moving = moving_.load_acquire();
    seam::did("allocator.look_for_moving", moving != 0);
    if (moving != 0) {
      moving_.wait(moving);
      continue;
    }
    const bool any_arrived = arrivals_.load_relaxed() != arrivals;
    seam::did("allocator.look_for_arrivals", any_arrived);
    if (!any_arrived) return taken;
  }
}

// Down to the low watermark, when as much more would pass the high one.
void Allocator::give_up_cache_for(Want want) {
  const uint64_t size = want.size, most = limit(want.kind);
  const uint64_t high = share_of(most, high_watermark_), low = share_of(most, low_watermark_);
  if (size > most || of(want.kind).reserved.load_relaxed() <= high - std::min(size, high)) return;
  free_cached_down_to(want.kind, low - std::min(size, low));
}

void Allocator::arrived(uint64_t bytes) {
  if (bytes == 0) return;
  arrivals_.add_release(1);  // first: who finds nothing moving finds it counted
  seam::did("allocator.count_arrival");
  moving_.sub_release(bytes);
  seam::did("allocator.arrive");
  moving_.notify_all();
}

Result<Allocator::Block> Allocator::take_from_driver(Want want) {
  if (!reserve(want)) return Status::exhausted("the limit is reached");
  auto block = device_->allocate(want.size, want.kind, NoLocksHeld{});
  if (!block.ok()) of(want.kind).reserved.sub_relaxed(want.size);
  return block;
}

bool Allocator::reserve(Want want) {
  Kind& kind = of(want.kind);
  uint64_t seen = kind.reserved.load_relaxed();
  do {
    const uint64_t most = kind.limit.load_relaxed();
    if (want.size > most || seen > most - want.size) return false;
  } while (!kind.reserved.cas_weak_acq_rel(seen, seen + want.size));
  seam::did("allocator.reserve");
  kind.peak_reserved.max_relaxed(seen + want.size);
  return true;
}

void Allocator::recycle(Block block, std::vector<Point> uses) noexcept {
  if (fork_generation() != generation_) [[unlikely]] {
    static_cast<void>(block.release());  // the child of a fork owns neither the locks nor the device
    return;
  }
  if (over(uses)) [[likely]] {
    keep(std::move(block), true);
    return;
  }
  if (!try_wait_in_line(block, uses)) {
    wait_for(uses, Deadline::never());
    keep(std::move(block), true);
    return;
  }
  bool awaited = true;
  for (const Point& point : uses) awaited = point.timeline->ring_at(point.value) && awaited;
  // A use has ended meanwhile, perhaps as the last one: the bell may have rung before for the others.
  if (!awaited) reap_pending();
}

bool Allocator::try_wait_in_line(Block& block, const std::vector<Point>& uses) noexcept {
  const Want held{block->bytes(), block->kind()};
  pending_count_.add_seq_cst(1);  // before ring_at() reads how far the uses are
  seam::did("allocator.count_waiting");
  try {
    Pending waiting{nullptr, uses};
    auto pending = pending_.lock();
    pending->blocks.push_back(std::move(waiting));
    pending->blocks.back().block = std::move(block);
    pending->bytes[held.kind] += held.size;
    seam::did("allocator.wait_in_line");
  } catch (const std::bad_alloc&) {
    pending_count_.sub_relaxed(1);
    return false;
  }
  count_taken_back(held);
  return true;
}

void Allocator::keep(Block block, bool was_allocated) noexcept {
  const Want held{block->bytes(), block->kind()};
  if (!try_keep(block, was_allocated)) {
    if (was_allocated) count_taken_back(held);
    block = nullptr;
    driver_frees_.add_relaxed(1);
    of(held.kind).reserved.sub_relaxed(held.size);
  }
  if (of(held.kind).reserved.load_relaxed() > limit(held.kind)) [[unlikely]]
    free_cached_down_to(held.kind, share_of(limit(held.kind), low_watermark_));
}

bool Allocator::try_keep(Block& block, bool was_allocated) noexcept {
  const uint64_t size = block->bytes();
  const MemoryKind kind = block->kind();
  const int64_t taken_back = was_allocated ? static_cast<int64_t>(size) : 0;
  const auto count = [&](auto& part) {
    part.tally[kind].allocated -= taken_back;
    part.tally[kind].cached += size;
    ++part.recycled;
    seam::did("allocator.keep", was_allocated);
  };
  try {
    if (size > size_class::kSmallMax) {
      auto large = large_.lock();
      large->blocks[kind].emplace(size, std::move(block));
      count(*large);
    } else {
      with_stripe([&](Stripe& stripe) {
        stripe.blocks[place_of(size, kind)].push_back(std::move(block));
        count(stripe);
      });
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

template <class Use>
void Allocator::with_stripe(Use&& use) {
  const size_t first = this_thread_stripe(kStripes);
  for (size_t i = 0; i < kStripes; ++i) {
    if (auto stripe = stripes_[(first + i) % kStripes].data.try_lock(); stripe.has_value())
      return use(**stripe);
  }
  auto stripe = stripes_[first].data.lock();
  use(*stripe);
}

void Allocator::count_given(Want want) {
  with_stripe([&](Stripe& stripe) { stripe.tally[want.kind].give(want.size); });
}

void Allocator::count_taken_back(Want want) {
  with_stripe([&](Stripe& stripe) { stripe.tally[want.kind].allocated -= static_cast<int64_t>(want.size); });
}

void Allocator::reap_pending() {
  const bool any = pending_count_.load_seq_cst() != 0;
  seam::did("allocator.look_for_waiting", any);
  if (!any) return;
  while (reap_some() == kAtOnce) {
  }
}

size_t Allocator::reap_some() {
  std::array<Block, kAtOnce> free;
  size_t count = 0;
  uint64_t bytes = 0;
  {
    auto pending = pending_.lock();
    std::erase_if(pending->blocks, [&](Pending& each) {
      if (count == kAtOnce || !over(each.uses)) return false;
      bytes += each.block->bytes();
      pending->bytes[each.block->kind()] -= each.block->bytes();
      free[count++] = std::move(each.block);
      return true;
    });
    moving_.add_relaxed(bytes);
    seam::did("allocator.take_waiting", static_cast<int64_t>(count));
  }
  pending_count_.sub_release(count);  // who finds none waiting finds them moving
  for (size_t i = 0; i < count; ++i) keep(std::move(free[i]), false);
  arrived(bytes);
  return count;
}

void Allocator::wait_for_pending() {
  std::vector<Point> points;
  {
    const auto pending = pending_.lock();
    for (const Pending& each : pending->blocks)
      points.insert(points.end(), each.uses.begin(), each.uses.end());
  }
  // Bounded, so that a device that hangs costs an allocation a second and not the thread.
  wait_for(points, Deadline::in(std::chrono::seconds(1)));
}

void Allocator::give_up() {
  LetGo after;
  struct Turn {
    Atomic<uint32_t>& taken;
    explicit Turn(Atomic<uint32_t>& word) : taken(word) {
      for (uint32_t free = 0; !taken.cas_strong_acq_rel(free, 1); free = 0) taken.wait(1);
    }
    ~Turn() {
      taken.store_release(0);
      taken.notify_one();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
  } const turn(giving_up_);
  after = give_up_();
}

void Allocator::empty_cache() {
  give_up();
  reap_pending();
  for (const MemoryKind kind : {MemoryKind::device, MemoryKind::staging}) free_cached_down_to(kind, 0);
}

void Allocator::free_cached_down_to(MemoryKind kind, uint64_t reserved_bytes) {
  while (free_some_cached(kind, reserved_bytes) == kAtOnce) {
  }
}

size_t Allocator::free_some_cached(MemoryKind kind, uint64_t reserved_bytes) {
  std::array<Block, kAtOnce> blocks;  // freed after the locks: a driver may block
  size_t count = 0;
  uint64_t bytes = 0;
  const auto enough = [&] {
    return count == kAtOnce || of(kind).reserved.load_relaxed() - bytes <= reserved_bytes;
  };
  const auto take = [&](Block& block, PerKind<Tally>& tally) {
    bytes += block->bytes();
    tally[kind].cached -= block->bytes();
    moving_.add_relaxed(block->bytes());
    seam::did("allocator.take_out");
    blocks[count++] = std::move(block);
  };
  {
    auto large = large_.lock();
    std::multimap<uint64_t, Block>& cached = large->blocks[kind];
    while (!enough() && !cached.empty()) {
      const auto largest = std::prev(cached.end());
      take(largest->second, large->tally);
      cached.erase(largest);
    }
  }
  for (PaddedStripe& padded : stripes_) {
    if (enough()) break;
    auto stripe = padded.data.lock();
    const auto begin = stripe->blocks.begin() + static_cast<ptrdiff_t>(kind) * size_class::kClasses;
    for (auto cached = begin; cached != begin + size_class::kClasses; ++cached) {
      while (!enough() && !cached->empty()) {
        take(cached->back(), stripe->tally);
        cached->pop_back();
      }
    }
  }
  if (count == 0) return 0;
  driver_frees_.add_relaxed(count);
  for (size_t i = 0; i < count; ++i) blocks[i] = nullptr;
  of(kind).reserved.sub_relaxed(bytes);
  seam::did("allocator.give_back");
  arrived(bytes);
  return count;
}

}  // namespace heddle::runtime
