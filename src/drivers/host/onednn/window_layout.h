// window_layout.h: how a convolution's weight lies in memory, and which parts of it are weights of panels.
//
//   What       Where channels of the output lie in blocks, one block after the other, a panel of whole
//              blocks is a weight of its own in the same layout. Whether oneDNN takes it, it has to be asked.
//   Errors     panel() throws what oneDNN's descriptions throw: use it inside caught().
//   Threads    Any.
#pragma once

#include <optional>
#include <vector>

#include "drivers/host/onednn/descriptors.h"

namespace heddle::host {

class WindowLayout {
 public:
  WindowLayout() = default;
  WindowLayout(const dnnl::memory::desc& whole, bool grouped);

  const dnnl::memory::desc& whole() const { return whole_; }
  int64_t block() const { return block_; }  // channels that lie together; 0: there are no panels
  dnnl::memory::desc panel(int64_t channels) const;
  int64_t bytes_to(int64_t channel) const;  // from where the weight begins

 private:
  dnnl::memory::desc whole_;
  std::optional<dnnl::memory::format_tag> tag_;  // none: it has no name here, and panels have to divide it
  int64_t channels_ = 0, block_ = 0;
  int64_t block_bytes_ = 0;
};

// Layouts that kernels for this number of axes are known to take, for an f32 weight without groups: of small
// blocks where the kernel for the whole asks for large ones.
std::vector<dnnl::memory::desc> known_layouts(const Dims& weight);

}  // namespace heddle::host
