#include "drivers/metal/staging.h"

#include <algorithm>
#include <bit>

#include "drivers/metal/memory.h"

namespace heddle::metal {
namespace {

constexpr uint64_t kSmallest = 256;

size_t power_of(uint64_t bytes) {
  return static_cast<size_t>(std::bit_width(std::max(bytes, kSmallest) - 1));
}

}  // namespace

Result<Staged> Staging::take(uint64_t bytes) {
  const size_t power = power_of(bytes);
  if (power >= 63) return Status::exhausted("a staging buffer of ", bytes, " bytes was asked for");
  {
    auto idle = idle_.lock();
    std::vector<Staged>& buffers = idle->by_power[power];
    if (!buffers.empty()) {
      Staged buffer = std::move(buffers.back());
      buffers.pop_back();
      idle->bytes -= uint64_t{1} << power;
      return buffer;
    }
  }
  return make_buffer(device_, uint64_t{1} << power, limit_);
}

void Staging::give(std::vector<Staged> buffers) {
  auto idle = idle_.lock();
  for (Staged& buffer : buffers) {
    const uint64_t bytes = [buffer.get() length];
    if (idle->bytes + bytes > kKept) continue;  // freed with `buffers`, after the lock
    idle->bytes += bytes;
    idle->by_power[power_of(bytes)].push_back(std::move(buffer));
  }
}

}  // namespace heddle::metal
