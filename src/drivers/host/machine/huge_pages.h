// huge_pages.h: room for what is written once and read by every call, back to back on pages of 2 MiB.
//
//   Why        A call that streams megabytes of weights looks up a page every 4 KiB. With large pages the
//              processor's table of translations covers the whole model.
//   What       take() cuts the next bytes off a span of address space. Pages cost memory when they are first
//              written, large ones where the kernel has them to give (`transparent_hugepage` is not `never`),
//              small ones elsewhere.
//   Invariant  Pieces are 64-byte aligned, never overlap and are never used again. Less than one large page
//              is resident beyond what was taken: a span that is left gives back what it has not dealt out.
//   Errors     exhausted when the system gives no address space.
//   Threads    Any.
//   Blocks     take() on the system when a span begins, with no lock held.
//   Lifetime   A span lives as long as any piece on it, or as its HugePages deals it out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "base/sync.h"

namespace heddle::host {

class HugePages {
 public:
  static constexpr uint64_t kPageBytes = 2 << 20;
  static constexpr uint64_t kSpanBytes = 64 << 20;  // at least: a larger piece gets a span of its size

  Result<Ref<std::byte>> take(uint64_t bytes);  // at least 1

 private:
  class Span;
  struct Current {
    Ref<Span> span;     // null: none yet
    uint64_t used = 0;  // of it
  };

  Guarded<Current, Rank::kAllocator> current_;
};

}  // namespace heddle::host
