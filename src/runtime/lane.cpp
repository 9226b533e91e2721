#include "runtime/lane.h"

namespace heddle::runtime {

Result<Lane*> Lanes::at(const Permit& permit, bool needs_stream) {
  Lane& lane = lanes_[static_cast<size_t>(permit.lane())];
  lane.index = permit.lane();
  if (needs_stream && (lane.stream == nullptr || lane.stream->failed())) [[unlikely]] {
    if (lane.stream != nullptr) roster_->forget(lane.stream);
    HEDDLE_TRY_ASSIGN(lane.stream, roster_->make(-1 - permit.lane()));
  }
  return &lane;
}

}  // namespace heddle::runtime
