// buffer.h: device memory that knows its last write and the reads since, as points on timelines.
//
//   What       Memory is a driver's raw allocation. Buffer is one use of it by one tensor; when the last
//              reference goes, the memory returns to its Recycler (the allocator's cache), or is freed. View
//              is a tensor's window on a buffer, or on caller memory for the length of a call.
//   Invariant  A Buffer in an in-flight record cannot die: holding it is keeping it. Its history names every
//              submission that may still touch it.
//   Threads    Buffer's history is locked; the bytes are ordered by timelines, not by this class.
//   Blocks     Never. Destroying the last reference may free memory (NoLocksHeld is asserted by the
//              recycler).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/sync.h"
#include "device/timeline.h"
#include "ir/tensor_type.h"

namespace heddle::device {

class RowFaults;

class Memory {
 public:
  virtual ~Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* host() const { return host_; }  // null when the host cannot address it
  uint64_t bytes() const { return bytes_; }

 protected:
  Memory(void* host, uint64_t bytes) : host_(host), bytes_(bytes) {}

 private:
  void* host_;
  uint64_t bytes_;
};

class Recycler {
 public:
  virtual ~Recycler() = default;
  // Takes memory whose last use is over at every point of `uses` (empty: over now).
  virtual void recycle(std::unique_ptr<Memory> memory, std::vector<Point> uses) noexcept = 0;
};

class Buffer {
 public:
  Buffer(std::unique_ptr<Memory> memory, uint64_t bytes, Ref<Recycler> recycler)
      : memory_(std::move(memory)), bytes_(bytes), recycler_(std::move(recycler)) {}
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* host() const { return static_cast<std::byte*>(memory_->host()); }
  uint64_t bytes() const { return bytes_; }
  const Memory& memory() const { return *memory_; }

  // The points a new access on timeline `own` must wait for: a read waits for the last write, a write also
  // for the reads since.
  void collect_waits(bool write, const Timeline* own, std::vector<Point>& waits) const;
  void mark_read(const Point& point);
  void mark_write(const Point& point, Ref<const RowFaults> writer = nullptr);
  // The faults of the run that wrote last; null: there is none, or it needs none. If the whole run failed,
  // the contents are undefined. This is known once it ends.
  Ref<const RowFaults> writer() const;
  Status fault() const;
  std::vector<Point> pending() const;  // submissions that may still touch it

 private:
  struct History {
    Point last_write;
    Ref<const RowFaults> writer;
    std::vector<Point> reads;  // since last_write; at most one per timeline
  };
  std::unique_ptr<Memory> memory_;
  uint64_t bytes_;
  Ref<Recycler> recycler_;
  mutable Guarded<History, Rank::kBuffer> history_;
  // Set by the first mark, under the lock, and never cleared: a buffer that only synchronous devices touch
  // has no history to lock for.
  Atomic<bool> marked_{false};
};

// Elements of a tensor. Strides count elements and may be zero (broadcast) or negative. Without a buffer
// the bytes are the caller's, valid until the call that was given the View returns.
struct View {
  Ref<Buffer> buffer;
  std::byte* data = nullptr;
  ir::DType dtype = ir::DType::kF32;
  ir::Extents extents;
  ir::Extents strides;

  static View contiguous(Ref<Buffer> buffer, std::byte* data, ir::DType dtype, const ir::Extents& extents);
  bool is_contiguous() const;
  uint64_t bytes() const { return static_cast<uint64_t>(extents.elements() * ir::size_of(dtype)); }
};

ir::Extents contiguous_strides(const ir::Extents& extents);

// On the host. Same dtype and extents, windows apart; addresses need not be aligned to the element.
void copy_view(const View& from, const View& to);
void fill_view(const View& to, double value);

}  // namespace heddle::device
