#include "tests/cuda_double/device_memory.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "base/sync.h"
#include "drivers/cuda/kernels/portable.h"
#include "tests/cuda_double/contexts.h"

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) static_cast<void>(0)
#endif

namespace heddle::cuda_double {
namespace {

constexpr uint64_t kAlign = 256, kGuard = 256;
constexpr int kGuardByte = 0xfd;
constexpr std::array kUnwritten = {std::byte{0xf5}, std::byte{0xff}};

using Blocks = std::map<uint64_t, Block>;  // by where they begin, without the mark
struct Memory {
  Blocks device, pinned;
  std::array<int64_t, kMostDevices> bytes{};
};
Guarded<Memory, Rank::kAllocator>& memory() {
  static auto* const all = new Guarded<Memory, Rank::kAllocator>();  // threads may outlive statics
  return *all;
}

// A guard, the block, and a guard that ends at a multiple of kAlign.
uint64_t whole_bytes(uint64_t bytes) { return kGuard + (bytes + kGuard + kAlign - 1) / kAlign * kAlign; }

void fill_with_unwritten(std::byte* at, uint64_t bytes) {
  uint64_t done = std::min<uint64_t>(bytes, kUnwritten.size());
  std::memcpy(at, kUnwritten.data(), done);
  for (uint64_t more = 0; done < bytes; done += more) {
    more = std::min(done, bytes - done);
    std::memcpy(at + done, at, more);
  }
}

uint64_t new_block(uint64_t bytes) {
  auto* const whole = static_cast<std::byte*>(std::aligned_alloc(kAlign, whole_bytes(bytes)));
  if (whole == nullptr) stop("an allocation", "the host has no memory");
  std::byte* const at = whole + kGuard;
  std::memset(whole, kGuardByte, kGuard);
  std::memset(at + bytes, kGuardByte, whole_bytes(bytes) - kGuard - bytes);
  fill_with_unwritten(at, bytes);
  ASAN_POISON_MEMORY_REGION(whole, kGuard);
  ASAN_POISON_MEMORY_REGION(at + bytes, whole_bytes(bytes) - kGuard - bytes);
  return reinterpret_cast<uint64_t>(at);
}

void free_block(uint64_t begin, uint64_t end, const char* what) {
  auto* const at = reinterpret_cast<std::byte*>(begin);
  std::byte* const whole = at - kGuard;
  const uint64_t bytes = end - begin;
  ASAN_UNPOISON_MEMORY_REGION(whole, whole_bytes(bytes));
  const auto is_guard = [](std::byte each) { return each == std::byte{kGuardByte}; };
  if (!std::all_of(whole, at, is_guard) || !std::all_of(at + bytes, whole + whole_bytes(bytes), is_guard))
    stop(what, "something was written beyond the block");
  std::free(whole);
}

Block find(const Memory& all, cuda::Address address) {
  const uint64_t at = address & ~cuda::kDoubleMark;
  const Blocks& of_kind = at != address ? all.device : all.pinned;
  const auto after = of_kind.upper_bound(at);
  if (after == of_kind.begin()) return {};
  const Block& block = std::prev(after)->second;
  return at < block.end ? block : Block{};
}

}  // namespace

void stop(const char* what, const char* why) {
  std::fprintf(stderr, "cuda double: %s: %s\n", what, why);
  std::abort();
}

cuda::Address allocate(uint64_t bytes, int device) {
  const uint64_t at = new_block(bytes);
  const auto all = memory().lock();
  all->device.emplace(at, Block{at + bytes, device});
  all->bytes[static_cast<size_t>(device)] += static_cast<int64_t>(bytes);
  return at | cuda::kDoubleMark;
}

void begin_release(cuda::Address address, int device) {
  constexpr const char* kWhat = "cuMemFreeAsync";
  const uint64_t at = address & ~cuda::kDoubleMark;
  const auto all = memory().lock();
  const auto found = all->device.find(at);
  if (at == address || found == all->device.end() || found->second.is_freed)
    stop(kWhat, "no allocation begins there");
  Block& block = found->second;
  if (block.device != device) stop(kWhat, "the memory is not of the stream's device");
  block.is_freed = true;
  all->bytes[static_cast<size_t>(device)] -= static_cast<int64_t>(block.end - at);
}

void end_release(cuda::Address address) {
  const uint64_t at = address & ~cuda::kDoubleMark;
  const uint64_t end = memory().lock()->device.extract(at).mapped().end;
  free_block(at, end, "cuMemFreeAsync");
}

void* allocate_pinned(uint64_t bytes) {
  const uint64_t at = new_block(bytes);
  memory().lock()->pinned.emplace(at, Block{at + bytes, kPinned});
  return reinterpret_cast<void*>(at);
}

void release_pinned(void* host) {
  constexpr const char* kWhat = "cuMemFreeHost";
  const auto at = reinterpret_cast<uint64_t>(host);
  const auto node = memory().lock()->pinned.extract(at);
  if (node.empty()) stop(kWhat, "no allocation begins there");
  free_block(at, node.mapped().end, kWhat);
}

Block block_at(cuda::Address address) { return find(*memory().lock(), address); }

int64_t allocated_bytes(int device) { return memory().lock()->bytes[static_cast<size_t>(device)]; }

std::byte* host_of(cuda::Address address, uint64_t bytes, const char* what) {
  const uint64_t at = address & ~cuda::kDoubleMark;
  const Block block = block_at(address);
  if (block.device == kNowhere || at + bytes > block.end)
    stop(what, "an address that is not allocated, or memory of the host that is not pinned");
  return reinterpret_cast<std::byte*>(at);
}

// Without the thread sanitizer: it looks at more bytes than a kernel may read, which others may write.
#if defined(__clang__)
__attribute__((no_sanitize("thread")))
#endif
bool is_unwritten(const std::byte* at, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) {
    if (at[i] != kUnwritten[i % 2]) return false;
  }
  return true;
}

}  // namespace heddle::cuda_double
