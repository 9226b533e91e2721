#include <algorithm>
#include <array>

#include "drivers/host/layout/storage.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/channels.h"
#include "drivers/host/onednn/conv.h"
#include "drivers/host/onednn/division.h"
#include "drivers/host/onednn/float_steps.h"
#include "drivers/host/onednn/pieces.h"
#include "ir/window.h"

namespace heddle::host {
namespace {

using PoolDesc = dnnl::pooling_forward::primitive_desc;

struct Windows {
  Dims kernel, strides, dilations, pads_begin, pads_end;
  dnnl::algorithm algorithm;
};

// Runs in the layout of its input; the output is turned when its readers want the other one.
class PoolStep final : public Step {
 public:
  static Result<std::unique_ptr<Step>> make(const Lowering& lowering, const Windows& windows) {
    auto step = std::make_unique<PoolStep>();
    const Engine& engine = lowering.weights.engine();
    const Operand &x = lowering.inputs[0], &y = lowering.outputs[0];
    HEDDLE_TRY_ASSIGN(step->x_, Turned::make(engine, x, Turned::Way::kInput, step->scratch_));
    HEDDLE_TRY_ASSIGN(step->y_, Turned::make(engine, y, Turned::Way::kOutput, step->scratch_));
    const int64_t images = x.extents[0];
    step->pieces_ = x.elements() >= (1 << 15) && images % lowering.width == 0 ? lowering.width : 1;
    step->x_stride_ = x.elements() / step->pieces_ * step->x_.element_bytes();
    step->y_stride_ = y.elements() / step->pieces_ * step->y_.element_bytes();
    HEDDLE_TRY_ASSIGN(const PoolDesc desc, caught("preparing a pool", [&] {
                        Dims in = to_dims(x.extents), out = to_dims(y.extents);
                        in[0] = out[0] = images / step->pieces_;
                        return PoolDesc(engine.cpu, dnnl::prop_kind::forward_inference, windows.algorithm,
                                        channels_last_desc(in, float_type(x.narrow)),
                                        channels_last_desc(out, float_type(y.narrow)), windows.strides,
                                        windows.kernel, windows.dilations, windows.pads_begin,
                                        windows.pads_end, engine.attributes());
                      }));
    HEDDLE_TRY_ASSIGN(step->primitive_,
                      (Primitive::make<PoolDesc, dnnl::pooling_forward>(
                          engine, desc, {{DNNL_ARG_SRC, desc.src_desc()}, {DNNL_ARG_DST, desc.dst_desc()}})));
    step->primitive_scratch_ = step->scratch_;
    step->scratch_stride_ = aligned(step->primitive_->scratch_bytes());
    step->scratch_ += step->scratch_stride_ * static_cast<uint64_t>(step->pieces_);
    return std::unique_ptr<Step>(std::move(step));
  }

  Status run(const RunContext& context) const override {
    HEDDLE_TRY(x_.run(context, base_));
    HEDDLE_TRY(for_each_piece(context, static_cast<size_t>(pieces_), "a pool", [&](size_t i) {
      const auto at = static_cast<int64_t>(i);
      const std::array<const void*, 3> addresses = {
          x_.address(context, base_) + at * x_stride_, y_.address(context, base_) + at * y_stride_,
          context.arena + base_ + primitive_scratch_ + i * scratch_stride_};
      return primitive_->run(addresses);
    }));
    return y_.run(context, base_);
  }

  uint64_t scratch_bytes() const override { return scratch_; }
  void set_scratch(uint64_t offset) override { base_ = offset; }
  uint64_t resident_bytes() const override { return 1024 + Primitive::kResidentBytes; }
  std::string path() const override { return path_of({primitive_}, static_cast<size_t>(pieces_)); }

 private:
  Turned x_, y_;
  int pieces_ = 1;
  int64_t x_stride_ = 0, y_stride_ = 0;  // bytes from piece to piece
  Ref<const Primitive> primitive_;
  uint64_t primitive_scratch_ = 0, scratch_stride_ = 0;
  uint64_t scratch_ = 0;
  uint64_t base_ = 0;
};

Windows whole_planes(const Lowering& lowering) {
  Windows w;
  const Dims x = to_dims(lowering.inputs[0].extents);
  w.kernel.assign(x.begin() + 2, x.end());
  w.strides.assign(w.kernel.size(), 1);
  w.dilations = w.pads_begin = w.pads_end = Dims(w.kernel.size(), 0);
  w.algorithm = dnnl::algorithm::pooling_avg_exclude_padding;
  return w;
}

}  // namespace

Result<std::unique_ptr<Step>> lower_average_pool(Lowering& lowering) {
  const ir::Extents& x = lowering.inputs[0].extents;
  const ir::Extents& y = lowering.outputs[0].extents;
  const ir::Node& node = lowering.node;
  if (x.rank() > 5 || counts_beyond_padding(node)) return reference_step(lowering);
  if (node.is("GlobalAveragePool")) return PoolStep::make(lowering, whole_planes(lowering));
  HEDDLE_TRY_ASSIGN(const ir::Window window, ir::Window::of(node, x.rank() - 2, {}));
  const bool count_padding = node.attributes.i64("count_include_pad") != 0;
  Windows w{window.kernel,
            window.strides,
            window.dilations,
            {},
            {},
            count_padding ? dnnl::algorithm::pooling_avg_include_padding
                          : dnnl::algorithm::pooling_avg_exclude_padding};
  for (size_t i = 0; i < window.axes(); ++i) {
    --w.dilations[i];
    const int64_t begin = window.pads(i, x[2 + i]).first;
    w.pads_begin.push_back(begin);
    w.pads_end.push_back((y[2 + i] - 1) * window.strides[i] + window.reach(i) - x[2 + i] - begin);
  }
  return PoolStep::make(lowering, w);
}

}  // namespace heddle::host
