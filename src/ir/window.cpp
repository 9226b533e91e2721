#include "ir/window.h"

#include <algorithm>
#include <string_view>

namespace heddle::ir {

namespace {

constexpr int64_t kMost = int64_t{1} << 30;  // products of two such numbers stay within 64 bits

Result<std::vector<int64_t>> numbers(const Node& node, std::string_view name, size_t count, int64_t least,
                                     int64_t otherwise) {
  std::vector<int64_t> out = node.attributes.ints(name, std::vector<int64_t>(count, otherwise));
  if (out.size() != count) {
    return Status::invalid("attribute '", name, "' has ", out.size(), " elements; it takes ", count);
  }
  for (int64_t number : out) {
    if (number >= least && number <= kMost) continue;
    return Status::invalid("attribute '", name, "' holds ", number, "; it has to be ", least, " to ", kMost);
  }
  return out;
}

Result<AutoPad> auto_pad_of(const Node& node) {
  const std::string name = node.attributes.str("auto_pad");
  if (name.empty() || name == "NOTSET") return AutoPad::kExplicit;
  if (name == "SAME_UPPER") return AutoPad::kSameUpper;
  if (name == "SAME_LOWER") return AutoPad::kSameLower;
  if (name == "VALID") return AutoPad::kValid;
  return Status::invalid("attribute 'auto_pad' is '", name,
                         "'; it has to be '', SAME_UPPER, SAME_LOWER or VALID");
}

}  // namespace

Result<Window> Window::of(const Node& node, size_t spatial, const std::vector<int64_t>& kernel) {
  Window w;
  w.kernel = kernel;
  if (node.attributes.has("kernel_shape")) {
    HEDDLE_TRY_ASSIGN(w.kernel, numbers(node, "kernel_shape", spatial, 1, 1));
  }
  if (w.kernel.size() != spatial) {
    return Status::invalid("the kernel has ", w.kernel.size(), " axes; x has ", spatial,
                           " after batch and channels");
  }
  HEDDLE_TRY_ASSIGN(w.strides, numbers(node, "strides", spatial, 1, 1));
  HEDDLE_TRY_ASSIGN(w.dilations, numbers(node, "dilations", spatial, 1, 1));
  HEDDLE_TRY_ASSIGN(const std::vector<int64_t> pads, numbers(node, "pads", 2 * spatial, 0, 0));
  HEDDLE_TRY_ASSIGN(w.auto_pad, auto_pad_of(node));
  const auto middle = pads.begin() + static_cast<int64_t>(spatial);
  w.pads_begin.assign(pads.begin(), middle);
  w.pads_end.assign(middle, pads.end());
  w.ceil_mode = node.attributes.i64("ceil_mode") != 0;
  for (size_t i = 0; i < spatial; ++i) {
    if (w.kernel[i] < 1 || w.kernel[i] > kMost) {
      return Status::invalid("the kernel's extent ", i, " is ", w.kernel[i], "; it has to be 1 to ", kMost);
    }
  }
  return w;
}

Result<Dim> Window::out(size_t i, const Dim& in) const {
  if (auto_pad == AutoPad::kSameUpper || auto_pad == AutoPad::kSameLower)
    return Dim::ceil_div(in, strides[i]);
  const bool padded = auto_pad == AutoPad::kExplicit;
  const Dim begin = padded ? pads_begin[i] : 0;
  const Dim room = in + begin + Dim(padded ? pads_end[i] : 0) - Dim(reach(i));
  if (room.is_static() && room.value() < 0) {
    return Status::invalid("the window spans ", reach(i), " but spatial axis ", i, " has extent ", in,
                           " with padding ", room + Dim(reach(i)) - in, "; the window has to fit");
  }
  const Dim stride(strides[i]);
  if (!ceil_mode) return Dim::floor_div(room, stride) + Dim(1);
  // The last window starts inside the input or the padding before it.
  return Dim::min(Dim::ceil_div(room, stride) + Dim(1), Dim::ceil_div(in + begin, stride));
}

std::pair<int64_t, int64_t> Window::pads(size_t i, int64_t in) const {
  if (auto_pad == AutoPad::kExplicit) return {pads_begin[i], pads_end[i]};
  if (auto_pad == AutoPad::kValid) return {0, 0};
  const int64_t windows = (in + strides[i] - 1) / strides[i];
  const int64_t total = std::max<int64_t>((windows - 1) * strides[i] + reach(i) - in, 0);
  const int64_t less = total / 2;
  return auto_pad == AutoPad::kSameUpper ? std::pair(less, total - less) : std::pair(total - less, less);
}

}  // namespace heddle::ir
