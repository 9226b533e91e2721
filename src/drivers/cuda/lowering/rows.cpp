// Softmax and normalisations.
#include "drivers/cuda/kernels/held_rows.h"
#include "drivers/cuda/lowering/lowering.h"
#include "ir/op.h"

namespace heddle::cuda {
namespace {

using ir::DType;

// Whether the threads of a team hold a row of so many elements in their registers.
bool is_held(DType dtype, const Teams& teams, int64_t extent) {
  return computed_in(dtype) == "_f32" && extent <= int64_t{teams.lanes} * kHeld;
}

Status lower_softmax(Lowering& l) {
  const Operand& in = l.inputs[0];
  HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(l.attributes().i64("axis", -1), in.extents.rank()));
  SoftmaxParams params;
  params.type = type_of(in.dtype);
  params.extent = in.extents[axis];
  for (size_t i = axis + 1; i < in.extents.rank(); ++i) params.inner *= in.extents[i];
  params.rows = in.elements() / params.extent;
  params.logarithm = l.node.is("LogSoftmax") ? 1 : 0;
  const Teams teams = teams_for(params.rows, params.extent, sizeof(float), l.emit.multiprocessors());
  params.lanes = teams.lanes;
  if (params.inner == 1 && is_held(in.dtype, teams, params.extent)) {
    return l.launch("softmax_held", params, {names(params.in, in), names(params.out, l.outputs[0])},
                    teams.grid);
  }
  return l.launch(text("softmax", computed_in(in.dtype)), params,
                  {names(params.in, in), names(params.out, l.outputs[0])},
                  rows_grid(params.rows, params.extent, in.dtype));
}

Status launch_norm(Lowering& l, NormParams params) {
  const Operand bias = l.has(2) ? l.inputs[2] : Operand();
  params.type = type_of(l.inputs[0].dtype);
  params.scale_type = type_of(l.inputs[1].dtype);
  params.bias_type = type_of(bias.dtype);
  params.epsilon = l.attributes().f64("epsilon", 1e-5);
  const DType dtype = l.inputs[0].dtype;
  const Teams teams = teams_for(params.rows, params.size, sizeof(float), l.emit.multiprocessors());
  params.lanes = teams.lanes;
  const bool held = is_held(dtype, teams, params.size) && computed_in(l.inputs[1].dtype) == "_f32" &&
                    computed_in(bias.dtype) == "_f32";
  return l.launch(held ? std::string("norm_held") : text("norm", computed_in(dtype)), params,
                  {names(params.in, l.inputs[0]), names(params.scale, l.inputs[1]), names(params.bias, bias),
                   names(params.out, l.outputs[0])},
                  held ? teams.grid : rows_grid(params.rows, params.size, dtype));
}

Status lower_layer_norm(Lowering& l) {
  const ir::Extents& x = l.inputs[0].extents;
  HEDDLE_TRY_ASSIGN(const size_t axis, ir::normalize_axis(l.attributes().i64("axis", -1), x.rank()));
  const ir::Extents normal(x.span().subspan(axis));
  const ir::Extents bias = l.has(2) ? l.inputs[2].extents : ir::Extents{};
  const Walk walk = walk_of(normal.span(), {broadcast_strides(l.inputs[1].extents, normal.rank()),
                                            broadcast_strides(bias, normal.rank())});
  NormParams params;
  params.centred = l.node.is("LayerNormalization") ? 1 : 0;
  params.size = walk.count;
  params.rows = l.inputs[0].elements() / walk.count;
  params.axes = walk.axes;
  std::copy(walk.strides[0].begin(), walk.strides[0].end(), params.scale_strides);
  std::copy(walk.strides[1].begin(), walk.strides[1].end(), params.bias_strides);
  const std::vector<int64_t> one(1, 1);
  params.in_a_row = walk.strides[0] == one && (!l.has(2) || walk.strides[1] == one) ? 1 : 0;
  return launch_norm(l, params);
}

// A row is a group of channels of one element of the batch.
Status lower_group_norm(Lowering& l) {
  const ir::Extents& x = l.inputs[0].extents;
  const int64_t channels = x[1], groups = l.attributes().i64("num_groups", channels);
  const int64_t plane = l.inputs[0].elements() / (x[0] * channels), each = channels / groups;
  const std::vector<int64_t> extents = {each, plane}, strides = {1, 0};
  const Walk walk = walk_of(extents, {strides});
  NormParams params;
  params.size = walk.count;
  params.rows = x[0] * groups;
  params.axes = walk.axes;
  std::copy(walk.strides[0].begin(), walk.strides[0].end(), params.scale_strides);
  std::copy(walk.strides[0].begin(), walk.strides[0].end(), params.bias_strides);
  params.groups = groups;
  params.group_step = each;
  return launch_norm(l, params);
}

Status lower_batch_norm(Lowering& l) {
  const ir::Extents& x = l.inputs[0].extents;
  ChannelNormParams params;
  params.type = type_of(l.inputs[0].dtype);
  for (size_t i = 0; i < 4; ++i) params.parameters[i] = type_of(l.inputs[1 + i].dtype);
  params.count = x.elements();
  params.channels = x[1];
  params.plane = params.count / (x[0] * x[1]);
  params.epsilon = l.attributes().f64("epsilon", 1e-5);
  return l.launch(
      text("channel_norm", computed_in(l.inputs[0].dtype)), params,
      {names(params.in, l.inputs[0]), names(params.scale, l.inputs[1]), names(params.bias, l.inputs[2]),
       names(params.mean, l.inputs[3]), names(params.variance, l.inputs[4]), names(params.out, l.outputs[0])},
      l.grid(params.count));
}

}  // namespace

std::span<const LoweringEntry> row_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"Softmax", lower_softmax},
      {"LogSoftmax", lower_softmax},
      {"LayerNormalization", lower_layer_norm},
      {"RMSNormalization", lower_layer_norm},
      {"GroupNormalization", lower_group_norm},
      {"InstanceNormalization", lower_group_norm},
      {"BatchNormalization", lower_batch_norm},
  };
  return kEntries;
}

}  // namespace heddle::cuda
