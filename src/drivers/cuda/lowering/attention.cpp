// Attention over heads that are slices of the last axis, and linear attention.
#include "drivers/cuda/kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "drivers/cuda/kernels/linear_attention.h"
#include "drivers/cuda/kernels/tensor_attention.h"
#include "drivers/cuda/lowering/lowering.h"

namespace heddle::cuda {
namespace {

enum AttentionInput : size_t { kQ, kK, kV, kMask };

struct AttentionOperands {
  Operand q, k, v;
};

double scale_of(const Lowering& l, int64_t extent) {
  const double given = l.attributes().f64("scale");
  return given != 0 ? given : 1 / std::sqrt(static_cast<double>(extent));
}

// Sets all but the addresses.
AttentionOperands set_form(const Lowering& l, AttentionParams& p) {
  const ir::Extents& q = l.inputs[kQ].extents;
  const int64_t heads = l.attributes().i64("num_heads"), key_heads = l.attributes().i64("kv_heads", heads);
  const bool packed = l.attributes().i64("packed") != 0;
  const int64_t extent = q[2] / (packed ? heads + 2 * key_heads : heads);
  p.type = type_of(l.inputs[kQ].dtype);
  p.causal = l.attributes().i64("causal") != 0 ? 1 : 0;
  p.heads = static_cast<int32_t>(heads);
  p.sharing = static_cast<int32_t>(heads / key_heads);
  p.batch = q[0];
  p.queries = q[1];
  p.keys = packed ? q[1] : l.inputs[kK].extents[1];
  p.extent = static_cast<int32_t>(extent);
  p.value_extent = static_cast<int32_t>(packed ? extent : l.inputs[kV].extents[2] / key_heads);
  p.q_row = p.k_row = p.v_row = q[2];
  p.scale = scale_of(l, extent);
  if (l.has(kMask)) {
    p.mask_type = type_of(l.inputs[kMask].dtype);
    const std::vector<int64_t> strides = broadcast_strides(l.inputs[kMask].extents, 4);
    std::copy(strides.begin(), strides.end(), p.mask_strides);
  }
  if (packed) {
    return {l.inputs[kQ], l.inputs[kQ].from(heads * extent), l.inputs[kQ].from((heads + key_heads) * extent)};
  }
  p.k_row = l.inputs[kK].extents[2];
  p.v_row = l.inputs[kV].extents[2];
  return {l.inputs[kQ], l.inputs[kK], l.inputs[kV]};
}

constexpr int64_t kMostBlocks = 1 << 16;

// As many queries in a tile as there are: with more threads more keys and values are read at once, which is
// worth more than a block for every multiprocessor.
template <int kWidth>
Grid tiles_grid(const AttentionParams& p) {
  using Kernel = TiledAttention<Type::kF32, kWidth>;
  using Shape = typename Kernel::Shape;
  int threads = kWarp;
  while (threads < Kernel::kThreads && Shape::rows_of(threads) < p.queries) threads *= 2;
  const int64_t rows = Shape::rows_of(threads), blocks = p.batch * p.heads * ((p.queries + rows - 1) / rows);
  return {std::clamp<int64_t>(blocks, 1, kMostBlocks), threads, Shape::bytes_of(threads)};
}

struct AttentionLaunch {
  std::string kernel;
  Grid grid;
  bool on_tensor_cores = false;
};

// Where 16 queries each make no more than three blocks for a multiprocessor, several warps take the same 16;
// else a block takes as many queries as leave a block for most of them. All of these give the same bits. On
// an H100 this was the fastest of them in 14 of 15 cases, and took 11 % more than it in the other.
template <int kWidth>
AttentionLaunch tensor_launch(const Lowering& l, const AttentionParams& p) {
  constexpr int kParts = kPartsOf<kWidth>;
  using Shape = TensorShape<kWidth, 1>;
  const int64_t most = l.emit.multiprocessors(), heads = p.batch * p.heads;
  const auto blocks = [&](int warps) {
    const int64_t rows = int64_t{kFragment} * warps;
    return heads * ((p.queries + rows - 1) / rows);
  };
  const auto grid = [&](int64_t count, int warps, int bytes) {
    return Grid{std::clamp<int64_t>(count, 1, kMostBlocks), kWarp * warps, bytes};
  };
  const std::string_view type = ir::name(l.outputs[0].dtype);
  if (blocks(1) <= 3 * most) {
    return {text("tensor_attention_", kWidth, "_parts_", type),
            grid(blocks(1), kParts, TensorShape<kWidth, kParts>::bytes_of(kWarp * kParts)), true};
  }
  int warps = 1;
  while (warps < Shape::kMostWarps && kFragment * warps < p.queries && 4 * blocks(2 * warps) >= 3 * most)
    warps *= 2;
  return {text("tensor_attention_", kWidth, "_", type),
          grid(blocks(warps), warps, Shape::bytes_of(kWarp * warps)), true};
}

// The type, the image's code for the GPU and the head alone decide which of the two it is, so that a query's
// bits do not depend on how many there are. On tensor cores positions are counted in 32 bits.
template <int kWidth>
AttentionLaunch tiled_launch(const Lowering& l, const AttentionParams& p) {
  constexpr int64_t kMostPositions = INT32_MAX / 2;
  const std::string name = text("attention_", kWidth, "_", ir::name(l.outputs[0].dtype));
  if (l.emit.has_kernel(text("tensor_", name)) && std::max(p.queries, p.keys) <= kMostPositions)
    return tensor_launch<kWidth>(l, p);
  return {name, tiles_grid<kWidth>(p)};
}

Status lower_attention(Lowering& l) {
  AttentionParams params;
  const AttentionOperands operands = set_form(l, params);
  const Operand& out = l.outputs[0];
  Operand mask = l.has(kMask) ? l.inputs[kMask] : Operand();
  const int32_t width = std::max(params.extent, params.value_extent);
  const bool computed = out.dtype == ir::DType::kF32 || out.dtype == ir::DType::kF64;
  Operand sums;
  AttentionLaunch launch;
  if (out.dtype != ir::DType::kF64 && width <= 128) {
    launch = width <= 32   ? tiled_launch<32>(l, params)
             : width <= 64 ? tiled_launch<64>(l, params)
                           : tiled_launch<128>(l, params);
  } else {
    launch = {text("attention", computed_in(out.dtype)),
              rows_grid(params.batch * params.queries * params.heads, params.keys, out.dtype)};
    sums = computed ? out : l.emit.scratch(ir::DType::kF32, out.extents);
  }
  // Kernels for tensor cores take no f64.
  if (launch.on_tensor_cores && mask.present() && mask.dtype == ir::DType::kF64) {
    const Operand narrow = l.emit.scratch(ir::DType::kF32, mask.extents);
    HEDDLE_TRY(l.cast(mask, narrow));
    mask = narrow;
    params.mask_type = Type::kF32;
  }
  return l.launch(launch.kernel, params,
                  {names(params.q, operands.q), names(params.k, operands.k), names(params.v, operands.v),
                   names(params.mask, mask), names(params.sums, sums), names(params.out, out)},
                  launch.grid);
}

enum LinearInput : size_t { kQuery, kKey, kValue, kPast, kDecay, kBeta };

// What the decay leaves of the state: its exponential, in the type that is computed in.
Result<Operand> kept_of(Lowering& l, ir::DType computed) {
  if (!l.has(kDecay)) return Operand();
  const Operand& decay = l.inputs[kDecay];
  const Operand kept = l.emit.scratch(computed, decay.extents);
  MapParams params = flat_params(decay.elements());
  if (params.count == 0) return kept;
  params.in[0].type = type_of(decay.dtype);
  params.in[0].strides[0] = 1;
  params.out_type = type_of(computed);
  HEDDLE_TRY(l.launch(text("exp", computed_in(computed)), params,
                      {names(params.in[0].data, decay), names(params.out, kept)}, l.grid(params.count)));
  return kept;
}

Status lower_linear_attention(Lowering& l) {
  const ir::Extents& q = l.inputs[kQuery].extents;
  const int64_t query_heads = l.attributes().i64("q_num_heads"), heads = l.attributes().i64("kv_num_heads");
  const ir::DType dtype = l.inputs[kQuery].dtype;
  const ir::DType computed = dtype == ir::DType::kF64 ? ir::DType::kF64 : ir::DType::kF32;
  LinearAttentionParams params;
  params.type = type_of(dtype);
  params.batch = q[0];
  params.positions = q[1];
  params.heads = heads;
  params.readers = query_heads / heads;
  params.extent = q[2] / query_heads;
  params.value_extent = l.inputs[kValue].extents[2] / heads;
  params.scale = scale_of(l, params.extent);
  params.kept_each = l.has(kDecay) && l.inputs[kDecay].extents[2] != heads ? 1 : 0;
  params.rates_each = l.has(kBeta) && l.inputs[kBeta].extents[2] != 1 ? 1 : 0;
  const Operand state = l.emit.scratch(computed, {q[0], heads, params.extent, params.value_extent});
  HEDDLE_TRY(l.has(kPast) ? l.cast(l.inputs[kPast], state) : l.fill(state, 0));
  HEDDLE_TRY_ASSIGN(const Operand kept, kept_of(l, computed));
  const Operand rates = l.has(kBeta) ? l.inputs[kBeta] : Operand();
  const Operand y = l.outputs[0];
  HEDDLE_TRY(l.launch(text("linear_attention", computed_in(computed)), params,
                      {names(params.q, l.inputs[kQuery]), names(params.k, l.inputs[kKey]),
                       names(params.v, l.inputs[kValue]), names(params.kept, kept),
                       names(params.rates, rates), names(params.state, state), names(params.out, y)},
                      l.grid(params.batch * heads * params.value_extent)));
  return l.outputs[1].present() ? l.cast(state, l.outputs[1]) : Status();
}

}  // namespace

std::span<const LoweringEntry> attention_lowerings() {
  static constexpr LoweringEntry kEntries[] = {{"Attention", lower_attention},
                                               {"LinearAttention", lower_linear_attention}};
  return kEntries;
}

}  // namespace heddle::cuda
