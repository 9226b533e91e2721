// Pools over windows and whole planes, and what undoes them.
#include "drivers/cuda/kernels/pool.h"

#include <algorithm>
#include <cmath>

#include "drivers/cuda/lowering/reductions.h"
#include "drivers/cuda/lowering/sliding.h"
#include "ir/op.h"

namespace heddle::cuda {
namespace {

Status launch_pool(Lowering& l, std::string_view kernel, PoolParams params) {
  const Operand& x = l.inputs[0];
  HEDDLE_TRY_ASSIGN(const ir::Window window, ir::Window::of(l.node, x.extents.rank() - 2, {}));
  const Operand& shaped = l.outputs[0].present() ? l.outputs[0] : l.outputs[1];
  HEDDLE_TRY_ASSIGN(params.window, sliding_of(window, x.extents, shaped.extents));
  params.type = type_of(x.dtype);
  params.count = shaped.elements();
  params.channels_last = x.channels_last ? x.extents[1] : 0;
  const Bind binds[] = {names(params.x, x), names(params.out, l.outputs[0]),
                        names(params.places, l.outputs.size() > 1 ? l.outputs[1] : Operand())};
  return l.emit.launch(text(kernel, computed_in(x.dtype)), &params, sizeof params, binds, nullptr,
                       l.grid(params.count), x.channels_last ? kChannelsLast : "");
}

Status lower_max_pool(Lowering& l) {
  PoolParams params;
  params.by_columns = l.attributes().i64("storage_order") != 0 ? 1 : 0;
  return launch_pool(l, "max_pool", params);
}

Status lower_average_pool(Lowering& l) {
  PoolParams params;
  params.counts_padding = l.attributes().i64("count_include_pad") != 0 ? 1 : 0;
  return launch_pool(l, "average_pool", params);
}

Status lower_lp_pool(Lowering& l) {
  PoolParams params;
  params.power = static_cast<double>(l.attributes().i64("p", 2));
  return launch_pool(l, "lp_pool", params);
}

Status lower_global_pool(Lowering& l) {
  const bool mean = l.node.is("GlobalAveragePool");
  std::vector<char> reduced(l.inputs[0].extents.rank(), 1);
  reduced[0] = reduced[1] = 0;
  ReduceParams params;
  params.empty = mean ? NAN : -INFINITY;
  return launch_reduction(l, mean ? "reduce_mean" : "reduce_greatest", reduced, params);
}

Status lower_max_unpool(Lowering& l) {
  const Operand &x = l.inputs[0], &indices = l.inputs[1], &out = l.outputs[0];
  HEDDLE_TRY_ASSIGN(const ir::Window window, ir::Window::of(l.node, x.extents.rank() - 2, {}));
  // The tensor that was pooled: the output, but for an output_shape that is given.
  std::vector<int64_t> whole = {x.extents[0], x.extents[1]};
  for (size_t i = 0; i < window.axes(); ++i) {
    whole.push_back((x.extents[2 + i] - 1) * window.strides[i] + window.kernel[i] - window.pads_begin[i] -
                    window.pads_end[i]);
  }
  const std::vector<int64_t> strides = row_major(out.extents.span());
  UnpoolParams params;
  params.count = x.elements();
  params.places = 1;
  params.axes.rank = static_cast<int32_t>(whole.size());
  for (const int64_t extent : whole) params.places *= extent;
  params.axes.small = params.places <= INT32_MAX ? 1 : 0;
  std::copy(whole.begin(), whole.end(), params.axes.extents);
  std::copy(out.extents.begin(), out.extents.end(), params.extents);
  std::copy(strides.begin(), strides.end(), params.strides);
  params.flags = l.flags(1, text("an index is outside [0, ", params.places - 1, "]"));
  const Operand last = l.emit.scratch(ir::DType::kI64, out.extents);
  HEDDLE_TRY(l.fill(last, 0));
  if (params.count > 0) {
    HEDDLE_TRY(l.launch("unpool_places", params, {names(params.indices, indices), names(params.last, last)},
                        params.flags, l.grid(params.count)));
  }
  params.count = out.elements();
  return l.launch(text("unpool", by_bytes(out.element_bytes())), params,
                  {names(params.x, x), names(params.last, last), names(params.out, out)},
                  l.grid(params.count));
}

Status lower_col2im(Lowering& l) {
  const Operand &x = l.inputs[0], &out = l.outputs[0];
  HEDDLE_TRY_ASSIGN(const std::vector<int64_t> block, l.integers(2, "block_shape"));
  const size_t rank = block.size();
  const std::vector<int64_t> ones(rank, 1), zeros(2 * rank, 0);
  const std::vector<int64_t> strides = l.attributes().ints("strides", ones),
                             dilations = l.attributes().ints("dilations", ones),
                             pads = l.attributes().ints("pads", zeros);
  std::vector<SlidingAxis> axes;
  for (size_t i = 0; i < rank; ++i) {
    const int64_t image = out.extents[2 + i], reach = dilations[i] * (block[i] - 1) + 1;
    const int64_t blocks = (image + pads[i] + pads[rank + i] - reach) / strides[i] + 1;
    axes.push_back({blocks, image, block[i], strides[i], dilations[i], pads[i], pads[rank + i]});
  }
  FoldParams params;
  HEDDLE_TRY_ASSIGN(params.window, sliding_of(axes));
  params.type = type_of(x.dtype);
  params.count = out.elements();
  const std::string_view computed = computed_in(x.dtype);
  return l.launch(text("fold", computed == "_i64" ? "_u64" : computed), params,
                  {names(params.x, x), names(params.out, out)}, l.grid(params.count));
}

}  // namespace

std::span<const LoweringEntry> pool_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"MaxPool", lower_max_pool},
      {"AveragePool", lower_average_pool},
      {"LpPool", lower_lp_pool},
      {"GlobalAveragePool", lower_global_pool},
      {"GlobalMaxPool", lower_global_pool},
      {"MaxUnpool", lower_max_unpool},
      {"Col2Im", lower_col2im},
  };
  return kEntries;
}

}  // namespace heddle::cuda
