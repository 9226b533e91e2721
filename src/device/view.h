// view.h: elements of a tensor in a buffer, or in the caller's memory for the length of a call.
//
//   What       Strides count elements and may be zero (broadcast) or negative; the first element lies at
//              byte `offset` of the buffer. Without a buffer the bytes are the caller's, until its call ends.
//   Threads    A value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/buffer.h"
#include "ir/tensor_type.h"

namespace heddle::device {

struct View {
  Ref<Buffer> buffer;
  uint64_t offset = 0;           // into the buffer
  std::byte* callers = nullptr;  // without a buffer
  ir::DType dtype = ir::DType::kF32;
  ir::Extents extents;
  ir::Extents strides;

  static View contiguous(Ref<Buffer> buffer, ir::DType dtype, const ir::Extents& extents,
                         uint64_t offset = 0);
  static View contiguous(std::byte* callers, ir::DType dtype, const ir::Extents& extents);
  bool is_contiguous() const;
  uint64_t bytes() const { return static_cast<uint64_t>(extents.elements() * ir::size_of(dtype)); }
  // Of the first element; null where the host cannot address it.
  std::byte* host() const {
    if (buffer == nullptr) return callers;
    return buffer->host() == nullptr ? nullptr : buffer->host() + offset;
  }
  // Of the first element, for programs that may name it.
  uint64_t address() const {
    return buffer == nullptr ? reinterpret_cast<uintptr_t>(callers) : buffer->address() + offset;
  }
};

ir::Extents contiguous_strides(const ir::Extents& extents);

// On the host, which can address both. Same dtype and extents, windows apart; addresses need not be aligned
// to the element.
void copy_view(const View& from, const View& to);
void fill_view(const View& to, double value);

}  // namespace heddle::device
