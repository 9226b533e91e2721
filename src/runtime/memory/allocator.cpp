#include "runtime/memory/allocator.h"

#include <algorithm>
#include <bit>

#include "base/fork.h"
#include "runtime/memory/size_class.h"
#include "runtime/thread_number.h"

namespace heddle::runtime {

using device::Memory;
using device::Point;

namespace {

bool over(const std::vector<Point>& uses) {
  return std::all_of(uses.begin(), uses.end(), [](const Point& use) {
    return use.done() || use.timeline->failed();
  });  // a failed queue touches nothing more
}

uint64_t share_of(uint64_t whole, double part) {
  return static_cast<uint64_t>(static_cast<double>(whole) * part);
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
  return allocator;
}

Allocator::Allocator(Ref<device::Device> device, const Options& options)
    : device_(std::move(device)),
      memory_bytes_(device_->traits().memory_bytes),
      high_watermark_(options.high_watermark),
      low_watermark_(options.low_watermark),
      generation_(fork_generation()) {}

Allocator::~Allocator() = default;

Status Allocator::set_memory_fraction(double fraction) {
  if (!(fraction > 0 && fraction <= 1)) {
    return Status::invalid("the memory fraction is ", fraction, "; it must be above 0 and at most 1");
  }
  // A device that does not say how much it has is limited by its own refusals.
  limit_.store_relaxed(memory_bytes_ == 0 ? UINT64_MAX
                       : fraction == 1    ? memory_bytes_
                                          : share_of(memory_bytes_, fraction));
  return {};
}

uint64_t Allocator::rounded(uint64_t bytes) { return size_class::rounded(bytes); }

Result<Ref<device::Buffer>> Allocator::allocate(uint64_t bytes) {
  const uint64_t size = size_class::rounded(bytes);
  Block block = take_cached(size);
  if (block == nullptr) [[unlikely]] {
    auto fresh = take_new(size);
    if (!fresh.ok()) {
      failures_.add_relaxed(1);
      return fresh.status();
    }
    block = std::move(fresh).value();
  }
  return std::make_shared<device::Buffer>(std::move(block), bytes, shared_from_this());
}

Allocator::Block Allocator::take_cached(uint64_t size) {
  return size <= size_class::kSmallMax ? take_small(size) : take_large(size);
}

Allocator::Block Allocator::take_small(uint64_t size) {
  const size_t index = size_class::index_of(size);
  const size_t first = this_thread_stripe(kStripes);
  for (size_t i = 0; i < kStripes; ++i) {
    auto stripe = stripes_[(first + i) % kStripes].data.try_lock();
    if (!stripe.has_value()) continue;
    std::vector<Block>& blocks = (*stripe)->blocks[index];
    if (blocks.empty()) continue;
    Block block = std::move(blocks.back());
    blocks.pop_back();
    (*stripe)->cached -= size;
    (*stripe)->allocated += static_cast<int64_t>(size);
    ++(*stripe)->hits;
    return block;
  }
  return nullptr;
}

Allocator::Block Allocator::take_large(uint64_t size) {
  auto large = large_.lock();
  const auto found = large->blocks.lower_bound(size);
  if (found == large->blocks.end() || found->first - size > size / 8) return nullptr;
  Block block = std::move(found->second);
  large->blocks.erase(found);
  large->cached -= block->bytes();
  large->allocated += static_cast<int64_t>(block->bytes());
  ++large->hits;
  return block;
}

Result<Allocator::Block> Allocator::take_new(uint64_t size) {
  reap_pending();
  if (Block block = take_cached(size)) return block;
  misses_.add_relaxed(1);
  const uint64_t most = limit();
  const uint64_t reserved = reserved_.load_relaxed();
  if (size <= most &&
      reserved > share_of(most, high_watermark_) - std::min(size, share_of(most, high_watermark_))) {
    const uint64_t low = share_of(most, low_watermark_);
    free_cached_down_to(low - std::min(size, low));
  }

  auto block = take_from_driver(size);
  if (!block.ok() && block.status().code() == Code::exhausted) block = take_emptied(size);
  if (!block.ok() && block.status().code() == Code::exhausted) {
    call_pressure(size);
    wait_for_pending();
    block = take_emptied(size);
  }
  if (!block.ok())
    return block.status().code() == Code::exhausted ? exhausted(size, block.status()) : block.status();
  count_given((*block)->bytes());
  note_peak();
  return block;
}

Result<Allocator::Block> Allocator::take_emptied(uint64_t size) {
  for (;;) {
    const uint64_t moving = moving_.load_acquire();
    empty_cache();
    auto block = take_from_driver(size);
    if (moving == 0 || block.ok() || block.status().code() != Code::exhausted) return block;
    moving_.wait(moving);
  }
}

void Allocator::arrived(uint64_t bytes) {
  if (bytes == 0) return;
  moving_.sub_acq_rel(bytes);
  moving_.notify_all();
}

Result<Allocator::Block> Allocator::take_from_driver(uint64_t size) {
  if (!reserve(size)) return Status::exhausted("the limit is reached");
  auto block = device_->allocate(size, NoLocksHeld{});
  if (!block.ok()) reserved_.sub_relaxed(size);
  return block;
}

bool Allocator::reserve(uint64_t bytes) {
  uint64_t seen = reserved_.load_relaxed();
  do {
    if (bytes > limit() || seen > limit() - bytes) return false;
  } while (!reserved_.cas_weak_acq_rel(seen, seen + bytes));
  peak_reserved_.max_relaxed(seen + bytes);
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
  count_taken_back(block->bytes());
  pending_count_.add_release(1);
  {
    auto pending = pending_.lock();
    pending->bytes += block->bytes();
    pending->blocks.push_back({std::move(block), uses});
  }
  bool awaited = false;
  for (const Point& point : uses) awaited = point.timeline->ring_at(point.value) || awaited;
  if (!awaited) reap_pending();  // they have ended meanwhile
}

void Allocator::keep(Block block, bool was_allocated) {
  const uint64_t size = block->bytes();
  const int64_t taken_back = was_allocated ? static_cast<int64_t>(size) : 0;
  if (size > size_class::kSmallMax) {
    auto large = large_.lock();
    large->allocated -= taken_back;
    large->cached += size;
    ++large->recycled;
    large->blocks.emplace(size, std::move(block));
  } else {
    with_stripe([&](Stripe& stripe) {
      stripe.allocated -= taken_back;
      stripe.cached += size;
      ++stripe.recycled;
      stripe.blocks[size_class::index_of(size)].push_back(std::move(block));
    });
  }
  if (reserved_.load_relaxed() > limit()) [[unlikely]]
    free_cached_down_to(share_of(limit(), low_watermark_));
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

void Allocator::count_given(uint64_t bytes) {
  with_stripe([&](Stripe& stripe) { stripe.allocated += static_cast<int64_t>(bytes); });
}

void Allocator::count_taken_back(uint64_t bytes) {
  with_stripe([&](Stripe& stripe) { stripe.allocated -= static_cast<int64_t>(bytes); });
}

void Allocator::reap_pending() {
  if (pending_count_.load_acquire() == 0) return;
  std::vector<Block> free;
  uint64_t bytes = 0;
  {
    auto pending = pending_.lock();
    std::erase_if(pending->blocks, [&](Pending& each) {
      if (!over(each.uses)) return false;
      bytes += each.block->bytes();
      free.push_back(std::move(each.block));
      return true;
    });
    pending->bytes -= bytes;
    moving_.add_acq_rel(bytes);
  }
  pending_count_.sub_relaxed(free.size());
  for (Block& block : free) keep(std::move(block), false);
  arrived(bytes);
}

void Allocator::wait_for_pending() {
  std::vector<Point> points;
  {
    const auto pending = pending_.lock();
    for (const Pending& each : pending->blocks)
      points.insert(points.end(), each.uses.begin(), each.uses.end());
  }
  // Bounded, so that a device that hangs costs an allocation a second and not the thread.
  const Deadline deadline = Deadline::in(std::chrono::seconds(1));
  for (const Point& point : points) static_cast<void>(point.timeline->wait(point.value, deadline));
}

void Allocator::empty_cache() {
  reap_pending();
  free_cached_down_to(0);
}

void Allocator::free_cached_down_to(uint64_t reserved_bytes) {
  std::vector<Block> blocks;  // freed after the locks: a driver may block
  uint64_t bytes = 0;
  const auto enough = [&] { return reserved_.load_relaxed() - bytes <= reserved_bytes; };
  const auto take = [&](Block& block, uint64_t& cached) {
    bytes += block->bytes();
    cached -= block->bytes();
    moving_.add_acq_rel(block->bytes());
    blocks.push_back(std::move(block));
  };
  {
    auto large = large_.lock();
    while (!enough() && !large->blocks.empty()) {
      const auto largest = std::prev(large->blocks.end());
      take(largest->second, large->cached);
      large->blocks.erase(largest);
    }
  }
  for (PaddedStripe& padded : stripes_) {
    if (enough()) break;
    auto stripe = padded.data.lock();
    for (std::vector<Block>& cached : stripe->blocks) {
      while (!enough() && !cached.empty()) {
        take(cached.back(), stripe->cached);
        cached.pop_back();
      }
    }
  }
  driver_frees_.add_relaxed(blocks.size());
  blocks.clear();
  reserved_.sub_relaxed(bytes);
  arrived(bytes);
}

uint64_t Allocator::on_pressure(Callback callback) {
  const uint64_t id = next_callback_.add_relaxed(1);
  auto shared = std::make_shared<const Callback>(std::move(callback));
  callbacks_.lock()->emplace_back(id, std::move(shared));
  return id;
}

void Allocator::remove_pressure(uint64_t id) {
  Callbacks removed;  // dies after the lock
  auto callbacks = callbacks_.lock();
  const auto found =
      std::find_if(callbacks->begin(), callbacks->end(), [id](const auto& each) { return each.first == id; });
  if (found == callbacks->end()) return;
  removed.push_back(std::move(*found));
  callbacks->erase(found);
}

void Allocator::call_pressure(uint64_t bytes) {
  const Callbacks callbacks = *callbacks_.lock();
  const NoLocksHeld checked;
  static_cast<void>(checked);
  for (const auto& [id, callback] : callbacks) (*callback)(bytes);
  pressure_calls_.add_relaxed(callbacks.size());
}

Status Allocator::exhausted(uint64_t asked, const Status& why) const {
  const Stats now = stats();
  return Status::exhausted("device '", device_->traits().name, "' has no ", asked,
                           " bytes more: ", now.allocated, " in use, ", now.cached, " cached, ", now.pending,
                           " awaiting their last submission, limit ", now.limit, " (", why.message(),
                           "). Use smaller batches or fewer callers, or raise the memory fraction");
}

Allocator::Stats Allocator::sum() const {
  Stats stats;
  int64_t allocated = 0;
  const auto add = [&](const auto& part) {
    allocated += part.allocated;
    stats.cached += part.cached;
    stats.hits += part.hits;
    stats.recycled += part.recycled;
  };
  for (const PaddedStripe& stripe : stripes_) add(*stripe.data.lock());
  add(*large_.lock());
  stats.allocated =
      static_cast<uint64_t>(std::max<int64_t>(allocated, 0));  // the parts were read one after another
  return stats;
}

// On the way of a call: a sample that would have to wait for a lock is left out.
void Allocator::note_peak() {
  int64_t allocated = 0;
  const auto added = [&](auto& part) {
    const auto held = part.try_lock();
    if (held.has_value()) allocated += (*held)->allocated;
    return held.has_value();
  };
  for (PaddedStripe& stripe : stripes_) {
    if (!added(stripe.data)) return;
  }
  if (added(large_)) peak_allocated_.max_relaxed(static_cast<uint64_t>(std::max<int64_t>(allocated, 0)));
}

Allocator::Stats Allocator::stats() const {
  Stats stats = sum();
  peak_allocated_.max_relaxed(stats.allocated);
  stats.pending = pending_.lock()->bytes;
  stats.reserved = reserved_.load_relaxed();
  stats.limit = limit();
  stats.peak_reserved = peak_reserved_.load_relaxed();
  stats.peak_allocated = peak_allocated_.load_relaxed();
  stats.misses = misses_.load_relaxed();
  stats.driver_frees = driver_frees_.load_relaxed();
  stats.failures = failures_.load_relaxed();
  stats.pressure_calls = pressure_calls_.load_relaxed();
  return stats;
}

void Allocator::reset_peaks() {
  peak_reserved_.store_relaxed(reserved_.load_relaxed());
  peak_allocated_.store_relaxed(sum().allocated);
}

}  // namespace heddle::runtime
