#include "ir/transposed_window.h"

#include <algorithm>

namespace heddle::ir {

Result<TransposedWindow> TransposedWindow::of(const Node& node, size_t spatial,
                                              const std::vector<int64_t>& kernel) {
  TransposedWindow t;
  HEDDLE_TRY_ASSIGN(t.window, Window::of(node, spatial, kernel));
  t.output_padding = node.attributes.ints("output_padding", std::vector<int64_t>(spatial, 0));
  t.output_shape = node.attributes.ints("output_shape");
  // Some files give the whole shape, batch and channels too.
  if (t.output_shape.size() == spatial + 2)
    t.output_shape.erase(t.output_shape.begin(), t.output_shape.begin() + 2);
  if (t.output_padding.size() != spatial) {
    return Status::invalid("attribute 'output_padding' has ", t.output_padding.size(), " elements; it takes ",
                           spatial);
  }
  if (!t.output_shape.empty() && t.output_shape.size() != spatial) {
    return Status::invalid("attribute 'output_shape' has ", t.output_shape.size(), " elements; it takes ",
                           spatial);
  }
  constexpr int64_t kMost = int64_t{1} << 30;
  for (const auto* numbers : {&t.output_padding, &t.output_shape}) {
    for (int64_t n : *numbers) {
      if (n < 0 || n > kMost)
        return Status::invalid("attribute 'output_padding' or 'output_shape' holds ", n,
                               "; it has to be 0 to ", kMost);
    }
  }
  return t;
}

Result<Dim> TransposedWindow::out(size_t i, const Dim& in) const {
  if (!output_shape.empty()) return Dim(output_shape[i]);
  const Dim stride(window.strides[i]);
  if (same()) return in * stride;
  const bool padded = window.auto_pad == AutoPad::kExplicit;
  const Dim cut = padded ? window.pads_begin[i] + window.pads_end[i] : 0;
  const Dim out = (in - Dim(1)) * stride + Dim(output_padding[i]) + Dim(window.reach(i)) - cut;
  if (!out.is_static() || out.value() >= 0) return out;
  return Status::invalid("attribute 'pads' cuts ", cut, " off spatial axis ", i, ", which has ", out + cut,
                         " elements");
}

int64_t TransposedWindow::begin(size_t i, int64_t in) const {
  if (output_shape.empty() && !same())
    return window.auto_pad == AutoPad::kExplicit ? window.pads_begin[i] : 0;
  const int64_t out = output_shape.empty() ? in * window.strides[i] : output_shape[i];
  const int64_t total = std::max<int64_t>(full(i, in) - out, 0);
  return window.auto_pad == AutoPad::kSameUpper ? total / 2 : total - total / 2;
}

}  // namespace heddle::ir
