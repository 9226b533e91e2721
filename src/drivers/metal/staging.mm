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

Result<std::list<Staged>> Staging::take(uint64_t bytes) {
  const size_t power = power_of(bytes);
  if (power >= 63) return Status::exhausted("a staging buffer of ", bytes, " bytes was asked for");
  std::list<Staged> one;
  {
    auto idle = idle_.lock();
    std::list<Staged>& buffers = idle->by_power[power];
    if (!buffers.empty()) {
      one.splice(one.begin(), buffers, std::prev(buffers.end()));
      idle->bytes -= uint64_t{1} << power;
      return one;
    }
  }
  HEDDLE_TRY_ASSIGN(Staged made, make_buffer(device_, uint64_t{1} << power, limit_));
  one.push_back(std::move(made));
  return one;
}

void Staging::give(std::list<Staged> buffers) {
  auto idle = idle_.lock();
  for (auto each = buffers.begin(); each != buffers.end();) {
    const auto buffer = each++;
    const uint64_t bytes = [buffer->get() length];
    if (idle->bytes + bytes > kKept) continue;  // freed with `buffers`, after the lock
    idle->bytes += bytes;
    std::list<Staged>& same = idle->by_power[power_of(bytes)];
    same.splice(same.end(), buffers, buffer);
  }
}

}  // namespace heddle::metal
