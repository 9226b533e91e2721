// since.h: where one of the PyTorchs that heddle-torch is built with answers otherwise than an older one.
#pragma once

namespace heddle::torch_backend {

constexpr bool since(int major, int minor) {
  return HEDDLE_TORCH_MAJOR > major || (HEDDLE_TORCH_MAJOR == major && HEDDLE_TORCH_MINOR >= minor);
}

// clamp and hardtanh of whole numbers take bounds that the dtype does not hold: they bound nothing.
inline constexpr bool kBoundsMayLieOutside = since(2, 15);
// The two targets of aminmax's out= share no memory.
inline constexpr bool kExtremesLieApart = since(2, 15);

}  // namespace heddle::torch_backend
