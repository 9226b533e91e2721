#include "tests/cuda_double/device_memory.h"

#include <algorithm>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "base/sync.h"
#include "drivers/cuda/kernels/portable.h"

namespace heddle::cuda_double {
namespace {

constexpr size_t kAlign = 256;
constexpr int kPoison = 0xa5;

struct Blocks {
  std::map<uint64_t, uint64_t> device, pinned;  // begin -> bytes, without the mark
  int64_t device_bytes = 0;
};
Guarded<Blocks, Rank::kAllocator>& blocks() {
  static auto* const all = new Guarded<Blocks, Rank::kAllocator>();  // threads may outlive statics
  return *all;
}

uint64_t new_block(uint64_t bytes) {
  void* const at = std::aligned_alloc(kAlign, (bytes + kAlign - 1) / kAlign * kAlign);
  if (at == nullptr) stop("an allocation", "the host has no memory");
  std::memset(at, kPoison, bytes);
  return reinterpret_cast<uint64_t>(at);
}

bool within(const std::map<uint64_t, uint64_t>& all, uint64_t at, uint64_t bytes) {
  auto after = all.upper_bound(at);
  if (after == all.begin()) return false;
  --after;
  return at + bytes <= after->first + after->second;
}

}  // namespace

void stop(const char* what, const char* why) {
  std::fprintf(stderr, "cuda double: %s: %s\n", what, why);
  std::abort();
}

cuda::Address allocate(uint64_t bytes) {
  const uint64_t at = new_block(bytes);
  auto all = blocks().lock();
  all->device.emplace(at, bytes);
  all->device_bytes += static_cast<int64_t>(bytes);
  return at | cuda::kDoubleMark;
}

void release(cuda::Address address) {
  const uint64_t at = address & ~cuda::kDoubleMark;
  {
    auto all = blocks().lock();
    const auto found = all->device.find(at);
    if (found == all->device.end() || at == address) stop("cuMemFreeAsync", "no allocation begins there");
    all->device_bytes -= static_cast<int64_t>(found->second);
    all->device.erase(found);
  }
  std::free(reinterpret_cast<void*>(at));
}

void* allocate_pinned(uint64_t bytes) {
  const uint64_t at = new_block(bytes);
  blocks().lock()->pinned.emplace(at, bytes);
  return reinterpret_cast<void*>(at);
}

void release_pinned(void* at) {
  if (blocks().lock()->pinned.erase(reinterpret_cast<uint64_t>(at)) == 0)
    stop("cuMemFreeHost", "no pinned memory begins there");
  std::free(at);
}

bool is_allocated(cuda::Address address) {
  const uint64_t at = address & ~cuda::kDoubleMark;
  const auto all = blocks().lock();
  return at != address && within(all->device, at, 1);
}

int64_t allocated_bytes() { return blocks().lock()->device_bytes; }

std::byte* host_of(cuda::Address address, uint64_t bytes, const char* what) {
  const uint64_t at = address & ~cuda::kDoubleMark;
  const auto all = blocks().lock();
  if (!within(at != address ? all->device : all->pinned, at, bytes))
    stop(what, "an address that is not allocated, or memory of the host that is not pinned");
  return reinterpret_cast<std::byte*>(at);
}

void require_written(cuda::Address address, uint64_t bytes, const char* what) {
  constexpr uint64_t kSample = 64;  // of chance it is not
  const std::byte* const at = host_of(address, bytes, what);
  if (bytes >= kSample &&
      std::all_of(at, at + kSample, [](std::byte each) { return each == std::byte{kPoison}; }))
    stop(what, "memory that nobody has written");
}

}  // namespace heddle::cuda_double
