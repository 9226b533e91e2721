#include "drivers/metal/memory.h"

#include <algorithm>

namespace heddle::metal {

Result<Owned<id<MTLBuffer>>> make_buffer(id<MTLDevice> device, uint64_t bytes, uint64_t limit,
                                         const Defences& defences) {
  const uint64_t most = std::min<uint64_t>(limit, [device maxBufferLength]);
  if (bytes > most) {
    return Status::exhausted("a buffer of ", bytes, " bytes was asked for; one may have ", most);
  }
  const uint64_t length = std::max<uint64_t>(bytes, 16);  // Metal has no empty buffers
  auto buffer = Owned<id<MTLBuffer>>::adopt([device newBufferWithLength:length
                                                                options:MTLResourceStorageModeShared]);
  if (!buffer && defences.notices_nil)
    return Status::exhausted("Metal has no memory for a buffer of ", bytes, " bytes");
  return buffer;
}

}  // namespace heddle::metal
