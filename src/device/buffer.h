// buffer.h: device memory that knows its last writes and the reads since, as points on timelines.
//
//   What       Memory is a driver's raw allocation. Buffer is one use of it by one tensor; when the last
//              reference goes, its Recycler (the allocator) gets the memory. Buffers come from a Source.
//   Kinds      `device` memory is what programs compute with; host() is null where the host cannot touch it.
//              `staging` is pinned memory of the host that the device can read and write. With unified memory
//              both are the same, and drivers are asked for `device` only.
//   Invariant  A Buffer in an in-flight record cannot die: holding it is keeping it. Its history names every
//              submission that may still touch it, but of one slot alone: that record keeps the slot.
//   Threads    Buffer's history is locked; timelines order the bytes.
//   Blocks     Never, but for Source, which may ask the driver, and the last reference's end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/sync.h"
#include "device/timeline.h"

namespace heddle::device {

class RowFaults;

enum class MemoryKind : uint8_t { device, staging };

class Memory {
 public:
  virtual ~Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  const void* maker() const { return place_.maker; }  // Device::maker() of the device whose memory it is
  MemoryKind kind() const { return place_.kind; }
  void* host() const { return place_.host; }           // null when the host cannot address it
  uint64_t address() const { return place_.address; }  // for programs of its device
  uint64_t bytes() const { return place_.bytes; }

 protected:
  struct Place {
    const void* maker;
    MemoryKind kind;
    void* host;
    uint64_t address, bytes;
  };
  explicit Memory(const Place& place) : place_(place) {}

 private:
  const Place place_;
};

struct ForeignMemory {  // another library's, on a device of ours
  uint64_t address = 0, bytes = 0;
  Ref<const void> keep;  // owns it
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
  uint64_t address() const { return memory_->address(); }
  uint64_t bytes() const { return bytes_; }
  const Memory& memory() const { return *memory_; }

  // What a new access on timeline `own` must wait for: the last writes, and a write also the reads since.
  void collect_waits(bool write, const Timeline* own, std::vector<Point>& waits) const;
  void mark_read(const Point& point);
  void mark_write(const Point& point, Ref<const RowFaults> writer = nullptr);
  void mark_write_beside(const Point& point);  // that may have waited for no use; the writer stays
  void forget_writer();                        // the host writes it now, the uses before are over
  // Of the run that wrote last; null: none, or it needs none. If all of it failed, contents are undefined.
  Ref<const RowFaults> writer() const;
  Status fault() const;
  std::vector<Point> pending() const;  // submissions that may still touch it
  Status readable() const;  // unavailable: a forked child, and a thread of its parent had the history then

 private:
  struct History {
    Point last_write;
    Ref<const RowFaults> writer;
    std::vector<Point> writes, reads;  // that last_write may not have waited for; one per timeline
  };
  std::unique_ptr<Memory> memory_;
  uint64_t bytes_;
  Ref<Recycler> recycler_;
  mutable Guarded<History, Rank::kBuffer> history_;
  // Set by the first mark, under the lock, for good: what only synchronous devices touch locks nothing.
  Atomic<bool> marked_{false};
  const uint32_t generation_ = fork_generation();  // of the maker
};

class Source {
 public:
  virtual ~Source() = default;
  // At least 64-byte aligned. exhausted: no memory. May block and run callbacks: no lock is held.
  virtual Result<Ref<Buffer>> allocate(uint64_t bytes, MemoryKind kind) = 0;
  Result<Ref<Buffer>> allocate(uint64_t bytes) { return allocate(bytes, MemoryKind::device); }
  // Counts memory that the caller gets elsewhere, until the reference goes. exhausted, as above.
  virtual Result<Ref<const void>> charge(uint64_t bytes) = 0;
};

}  // namespace heddle::device
