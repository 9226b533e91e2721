// aligned_bytes.h: a block of host memory, aligned to 64 bytes, freed with its owner.
//
//   Invariant  size() bytes, contents undefined after make(); an empty block has data() == null.
//   Errors     exhausted when the system has no memory, or when `bytes` is more than `limit`.
//   Threads    A value with one owner.
//   Blocks     The system's allocator may.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/status.h"

namespace heddle::host {

// To the next place where a block may begin. The sum must fit, as sizes of a program's parts do.
constexpr uint64_t kBlockAlignment = 64;
constexpr uint64_t aligned(uint64_t bytes) {
  return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

class AlignedBytes {
 public:
  static constexpr uint64_t kAlignment = kBlockAlignment;

  AlignedBytes() = default;
  static Result<AlignedBytes> make(uint64_t bytes, uint64_t limit = UINT64_MAX) {
    AlignedBytes block;
    if (bytes == 0) return block;
    if (bytes > limit || bytes > UINT64_MAX - kAlignment) {
      return Status::exhausted("the request is for ", bytes, " bytes, but this process may use ", limit);
    }
    block.data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, aligned(bytes))));
    if (block.data_ == nullptr)
      return Status::exhausted("the system has no ", bytes, " bytes of memory left");
    block.size_ = bytes;
    return block;
  }

  std::byte* data() const { return data_.get(); }
  uint64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  uint64_t size_ = 0;
};

}  // namespace heddle::host
