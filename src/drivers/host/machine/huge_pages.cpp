#include "drivers/host/machine/huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "drivers/host/machine/aligned_bytes.h"

namespace heddle::host {
namespace {

uint64_t rounded_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

class HugePages::Span {
 public:
  static Result<Ref<Span>> make(uint64_t bytes) {
    // The system aligns to small pages: what surplus lies before and behind goes back at once.
    const uint64_t asked = bytes + kPageBytes;
    void* mapped =
        ::mmap(nullptr, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED)
      return Status::exhausted("the system has no ", bytes,
                               " bytes of address space left for packed weights");
    auto* start = static_cast<std::byte*>(mapped);
    const uint64_t before =
        rounded_up(reinterpret_cast<uintptr_t>(start), kPageBytes) - reinterpret_cast<uintptr_t>(start);
    give_back(start, before);
    give_back(start + before + bytes, kPageBytes - before);
#ifdef MADV_HUGEPAGE
    // Advice: a kernel without large pages refuses it and gives small ones.
    static_cast<void>(::madvise(start + before, bytes, MADV_HUGEPAGE));
#endif
    return std::make_shared<Span>(start + before, bytes);
  }

  Span(std::byte* data, uint64_t bytes) : data_(data), bytes_(bytes) {}
  ~Span() { give_back(data_, bytes_); }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  void shrink(uint64_t used) {  // by its owner, after it left Current, where others read its size
    const uint64_t kept = rounded_up(used, static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)));
    if (kept >= bytes_) return;
    give_back(data_ + kept, bytes_ - kept);
    bytes_ = kept;
  }

 private:
  static void give_back(std::byte* start, uint64_t bytes) {
    if (bytes > 0) ::munmap(start, bytes);
  }

  std::byte* data_;
  uint64_t bytes_;
};

Result<Ref<std::byte>> HugePages::take(uint64_t bytes) {
  if (bytes > UINT64_MAX / 2) return Status::exhausted("a weight of ", bytes, " bytes fits no address space");
  const uint64_t length = rounded_up(bytes, AlignedBytes::kAlignment);
  const auto cut = [length](Current& current) -> Ref<std::byte> {
    if (current.span == nullptr || current.span->bytes() - current.used < length) return nullptr;
    std::byte* piece = current.span->data() + current.used;
    current.used += length;
    return {current.span, piece};
  };
  if (Ref<std::byte> piece = cut(*current_.lock())) return piece;

  HEDDLE_TRY_ASSIGN(Ref<Span> fresh, Span::make(std::max(kSpanBytes, rounded_up(length, kPageBytes))));
  Current left;
  Ref<std::byte> piece;
  {
    auto current = current_.lock();
    piece = cut(*current);  // another thread may have begun a span meanwhile; ours then goes back, untouched
    if (piece == nullptr) {
      left = std::exchange(*current, Current{std::move(fresh), 0});
      piece = cut(*current);
    }
  }
  if (left.span != nullptr) left.span->shrink(left.used);
  return piece;
}

}  // namespace heddle::host
