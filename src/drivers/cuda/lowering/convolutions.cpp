// Convolutions, transposed ones, and those of 8-bit integers.
#include "drivers/cuda/kernels/convolution.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "drivers/cuda/kernels/convolution_direct.h"

#include "drivers/cuda/lowering/lowering.h"
#include "drivers/cuda/lowering/sliding.h"
#include "ir/op.h"
#include "ir/ops/activation.h"
#include "ir/ops/convolution.h"

namespace heddle::cuda {
namespace {

struct Added {
  Operand bias, residual;
};

Result<Finish> finish_of(const Lowering& l) {
  HEDDLE_TRY_ASSIGN(const ir::Activation activation, ir::activation_of(l.node));
  Finish finish;
  finish.type = type_of(l.outputs[0].dtype);
  finish.act = static_cast<Act>(activation.kind);
  finish.numbers = {activation.alpha, activation.beta};
  return finish;
}

ConvolutionParams params_of(const Lowering& l, const Sliding& window, int64_t groups) {
  const Operand &x = l.inputs[0], &out = l.outputs[0];
  ConvolutionParams params;
  params.x_type = type_of(x.dtype);
  params.w_type = type_of(l.inputs[1].dtype);
  params.out_type = type_of(out.dtype);
  params.window = window;
  params.count = out.elements();
  params.channels = x.extents[1];
  params.out_channels = out.extents[1];
  params.group_channels = params.channels / groups;
  params.group_outputs = params.out_channels / groups;
  return params;
}

Result<Sliding> window_of(const Lowering& l) {
  const ir::Extents& w = l.inputs[1].extents;
  const std::vector<int64_t> kernel(w.begin() + 2, w.end());
  HEDDLE_TRY_ASSIGN(const ir::Window window, ir::Window::of(l.node, kernel.size(), kernel));
  return sliding_of(window, l.inputs[0].extents, l.outputs[0].extents);
}

Status launch_plain(Lowering& l, const ConvolutionParams& params, const Operand& w, const Added& added) {
  return l.launch(text("convolution", computed_in(l.inputs[0].dtype)), params,
                  {names(params.x, l.inputs[0]), names(params.w, w), names(params.out, l.outputs[0]),
                   names(params.finish.bias, added.bias), names(params.finish.residual, added.residual)},
                  l.grid(params.count));
}

// Whether 32 bits count the elements of an image with all that windows reach, and those of a group's weights,
// with room for a place that is outside every plane.
bool fits_tiles(const ConvolutionParams& p) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const Sliding& w = p.window;
  int64_t reached = p.channels;
  for (int i = 0; i < kPlaneAxes; ++i) {
    const int64_t reach = int64_t{w.kernel[i]} * w.dilations[i];
    reached *= std::max(w.in[i], w.out[i]) + w.begin[i] + w.end[i] + reach;
    if (reached > kMost) return false;
  }
  return p.group_outputs * p.group_channels * w.taps <= kMost;
}

std::string_view bits_of(ir::DType dtype) { return dtype == ir::DType::kF32 ? "_f32" : "_16"; }

struct Tile {
  int64_t rows, columns;
};
constexpr Tile kSmallTile = {64, 64};

int64_t up(int64_t count, int64_t by) { return (count + by - 1) / by; }
int64_t tiles_of(const Tile& tile, const ConvolutionTileParams& p, int64_t places) {
  return up(p.group_outputs, tile.rows) * up(places, tile.columns) * p.groups;
}

// Chunks of a sum, so many that one image makes work for a whole GPU. Neither the GPU nor the batch decides:
// bits depend on it.
void set_chunks(ConvolutionTileParams& p) {
  constexpr int64_t kWork = 128, kStep = 8, kLeastChunk = 128;
  const int64_t wanted = up(kWork, tiles_of(kSmallTile, p, p.window.out_plane));
  const int64_t chunks = std::clamp<int64_t>(p.depth / kLeastChunk, 1, wanted);
  p.chunk = static_cast<int32_t>(up(up(p.depth, chunks), kStep) * kStep);
  p.chunks = static_cast<int32_t>(up(p.depth, p.chunk));
}

// The largest that leaves no multiprocessor without one.
Tile tile_for(const ConvolutionTileParams& p, int multiprocessors) {
  for (const Tile& tile : {Tile{128, 128}, Tile{64, 128}}) {
    const bool takes_chunks = tile.rows < 128;
    if (p.group_outputs > tile.rows / 2 && tiles_of(tile, p, p.places) >= multiprocessors &&
        (takes_chunks || p.chunks == 1))
      return tile;
  }
  return kSmallTile;
}

ConvolutionTileParams tiles_params(const ConvolutionParams& all) {
  const Sliding& window = all.window;
  ConvolutionTileParams params;
  params.window = window;
  params.finish = all.finish;
  params.groups = static_cast<int32_t>(all.channels / all.group_channels);
  params.depth = static_cast<int32_t>(all.group_channels * window.taps);
  params.group_outputs = static_cast<int32_t>(all.group_outputs);
  params.count = all.count;
  params.places = all.count / all.out_channels;
  params.x_group = all.group_channels * window.in_plane;
  params.x_image = all.channels * window.in_plane;
  params.out_channels = all.out_channels;
  params.out_plane = window.out_plane;
  params.out_steps[0] = window.out[1] * window.out[2];
  params.out_steps[1] = window.out[2];
  params.w_row = params.depth;
  params.w_channel = window.taps;
  params.w_steps[0] = window.kernel[1] * window.kernel[2];
  params.w_steps[1] = window.kernel[2];
  params.w_group = all.group_outputs * params.depth;
  return params;
}

std::string tile_kernel(const Tile& tile, ir::DType dtype) {
  return text("convolution_tile_", tile.rows, "_", tile.columns, bits_of(dtype));
}

Grid tile_grid(const Tile& tile, int64_t blocks) {
  constexpr int64_t kMostBlocks = 1 << 20, kDepth = 8, kFloat = 4, kTap = 32;
  const int64_t shared = 2 * kDepth * ((tile.rows + 4 + tile.columns) * kFloat + kTap);
  return {std::min(blocks, kMostBlocks), 256, shared};
}

Status launch_tiles(Lowering& l, const Tile& tile, const ConvolutionTileParams& params, int64_t blocks,
                    const Operand& w, const Operand& out, const Operand& partial, const Added& added) {
  return l.launch(tile_kernel(tile, out.dtype), params,
                  {names(params.x, l.inputs[0]), names(params.w, w), names(params.out, out),
                   names(params.partial, partial), names(params.finish.bias, added.bias),
                   names(params.finish.residual, added.residual)},
                  tile_grid(tile, blocks));
}

// A convolution in tiles; with chunks, in two launches.
struct Tiling {
  ConvolutionTileParams params;
  Tile tile;
  int64_t blocks;
  bool in_chunks = false;
  ConvolutionChunksParams sums;
};

Tiling tiling_of(const ConvolutionParams& all, int multiprocessors) {
  Tiling made{tiles_params(all), {}, 0, false, {}};
  ConvolutionTileParams& params = made.params;
  set_chunks(params);
  made.tile = tile_for(params, multiprocessors);
  // A block makes all chunks of its sums where there are blocks enough.
  made.blocks = tiles_of(made.tile, params, params.places);
  made.in_chunks = params.chunks > 1 && made.blocks < 2 * int64_t{multiprocessors};
  if (!made.in_chunks) return made;
  made.blocks *= params.chunks;
  made.sums.finish = all.finish;
  made.sums.chunks = params.chunks;
  made.sums.count = params.count;
  made.sums.plane = all.window.out_plane;
  made.sums.out_channels = all.out_channels;
  return made;
}

Status lower_tiles(Lowering& l, const Tiling& tiling, const Added& added) {
  const Operand& out = l.outputs[0];
  Operand partial;
  if (tiling.in_chunks)
    partial = l.emit.scratch(ir::DType::kF32, {tiling.params.chunks, tiling.params.count});
  HEDDLE_TRY(launch_tiles(l, tiling.tile, tiling.params, tiling.blocks, l.inputs[1], out, partial, added));
  if (!tiling.in_chunks) return {};
  const ConvolutionChunksParams& sums = tiling.sums;
  return l.launch("convolution_chunks", sums,
                  {names(sums.partial, partial), names(sums.out, out), names(sums.finish.bias, added.bias),
                   names(sums.finish.residual, added.residual)},
                  l.grid(sums.count));
}

// The outputs of a transposed convolution that lie `stride` apart along an axis are those of a convolution:
// every so many taps, backwards.
struct Phase {
  int32_t first, out, tap, tap_step, taps, dilation, begin;
};
std::vector<Phase> phases_of(const Sliding& w, int axis) {
  const int32_t stride = w.strides[axis], dilation = w.dilations[axis];
  const int32_t step = stride / std::gcd(stride, dilation);
  std::vector<Phase> phases;
  for (int32_t first = 0; first < std::min(stride, w.out[axis]); ++first) {
    Phase phase = {
        first, (w.out[axis] - first + stride - 1) / stride, 0, step, 0, -(step * dilation / stride), 0};
    for (int32_t tap = std::min(step, w.kernel[axis]); tap-- > 0;) {
      const int32_t at = first + w.begin[axis] - tap * dilation;
      if (at % stride != 0) continue;
      phase.tap = tap;
      phase.taps = (w.kernel[axis] - 1 - tap) / step + 1;
      phase.begin = -(at / stride);
    }
    phases.push_back(phase);
  }
  return phases;
}

Status lower_phase(Lowering& l, const ConvolutionParams& all, const std::array<Phase, kPlaneAxes>& phases,
                   const Added& added) {
  ConvolutionTileParams params = tiles_params(all);
  const Sliding& whole = all.window;
  const int32_t w_steps[] = {whole.kernel[1] * whole.kernel[2], whole.kernel[2], 1};
  int64_t first_out = 0, first_w = 0;
  params.window.taps = params.window.out_plane = 1;
  for (size_t i = 0; i < kPlaneAxes; ++i) {
    const Phase& phase = phases[i];
    first_out += int64_t{phase.first} * params.out_steps[i];
    first_w += int64_t{phase.tap} * w_steps[i];
    params.out_steps[i] *= whole.strides[i];
    params.w_steps[i] = w_steps[i] * phase.tap_step;
    params.window.out[i] = phase.out;
    params.window.kernel[i] = std::max(phase.taps, 1);
    params.window.strides[i] = 1;
    params.window.dilations[i] = phase.dilation;
    params.window.begin[i] = phase.begin;
    params.window.taps *= phase.taps;
    params.window.out_plane *= phase.out;
  }
  params.depth = static_cast<int32_t>(all.group_channels) * params.window.taps;
  params.places = params.places / whole.out_plane * params.window.out_plane;
  params.w_row = whole.taps;
  params.w_channel = static_cast<int32_t>(all.group_outputs) * whole.taps;
  params.chunk = static_cast<int32_t>(up(std::max(params.depth, 1), 8) * 8);
  const Tile tile = tile_for(params, l.emit.multiprocessors());
  return launch_tiles(l, tile, params, tiles_of(tile, params, params.places), l.inputs[1].from(first_w),
                      l.outputs[0].from(first_out), {}, added);
}

Status lower_phases(Lowering& l, const ConvolutionParams& all, const Added& added) {
  for (const Phase& z : phases_of(all.window, 0)) {
    for (const Phase& y : phases_of(all.window, 1)) {
      for (const Phase& x : phases_of(all.window, 2)) HEDDLE_TRY(lower_phase(l, all, {z, y, x}, added));
    }
  }
  return {};
}

struct Direct {
  ConvolutionDirectParams params;
  Grid grid;
};

Direct direct_of(const ConvolutionParams& all) {
  constexpr int64_t kMostBlocks = 1 << 20, kPiece = 1024;
  ConvolutionDirectParams params;
  params.window = all.window;
  params.finish = all.finish;
  params.planes = all.count / all.window.out_plane;
  params.piece = kPiece;
  params.pieces = static_cast<int32_t>((all.window.out_plane + kPiece - 1) / kPiece);
  params.channels = static_cast<int32_t>(all.channels);
  params.out_channels = static_cast<int32_t>(all.out_channels);
  params.group_channels = static_cast<int32_t>(all.group_channels);
  params.group_outputs = static_cast<int32_t>(all.group_outputs);
  int64_t threads = 32;
  while (threads < 256 && threads < all.window.out_plane) threads *= 2;
  const int64_t shared =
      (all.group_channels * all.window.taps + 3) / 4 * 16;  // a float each, as blocks round it
  return {params, {std::min(params.planes * params.pieces, kMostBlocks), threads, shared}};
}

Status launch_direct(Lowering& l, const Direct& direct, const Added& added) {
  const ConvolutionDirectParams& params = direct.params;
  return l.launch(
      text("convolution_direct", bits_of(l.inputs[0].dtype)), params,
      {names(params.x, l.inputs[0]), names(params.w, l.inputs[1]), names(params.out, l.outputs[0]),
       names(params.finish.bias, added.bias), names(params.finish.residual, added.residual)},
      direct.grid);
}

template <class Params>
Params placed(Params params, const ConvolutionOperands& operands, const Added& added) {
  params.x = operands.x;
  params.w = operands.w;
  params.out = operands.out;
  if (added.bias.present()) params.finish.bias = operands.bias;
  if (added.residual.present()) params.finish.residual = operands.residual;
  return params;
}

Rival<ConvolutionOperands> rival_of(const Lowering& l, const Direct& direct, const Added& added) {
  return {[=, &l](const ConvolutionOperands& operands, StreamHandle stream) {
            const ConvolutionDirectParams on = placed(direct.params, operands, added);
            return l.emit.launch_now(text("convolution_direct", bits_of(l.inputs[0].dtype)), &on, direct.grid,
                                     stream);
          },
          {},
          0};
}

Rival<ConvolutionOperands> rival_of(const Lowering& l, const Tiling& tiling, const Added& added) {
  const auto bytes = static_cast<uint64_t>(tiling.params.chunks * tiling.params.count) * sizeof(float);
  return {[=, &l](const ConvolutionOperands& operands, StreamHandle stream) -> Status {
            ConvolutionTileParams on = placed(tiling.params, operands, added);
            if (tiling.in_chunks) on.partial = operands.workspace;
            HEDDLE_TRY(l.emit.launch_now(tile_kernel(tiling.tile, l.outputs[0].dtype), &on,
                                         tile_grid(tiling.tile, tiling.blocks), stream));
            if (!tiling.in_chunks) return {};
            ConvolutionChunksParams sums = tiling.sums;
            sums.partial = operands.workspace;
            sums.out = operands.out;
            sums.finish.bias = on.finish.bias;
            sums.finish.residual = on.finish.residual;
            return l.emit.launch_now("convolution_chunks", &sums, l.grid(sums.count), stream);
          },
          {},
          tiling.in_chunks ? bytes : 0};
}

// Nothing where cuDNN has no such convolution: padding that differs at the two ends of an axis, another
// activation than ReLU, or more elements than an int counts.
std::optional<ConvolutionProblem> problem_of(const Lowering& l, const ConvolutionParams& all,
                                             const Added& added) {
  const Act act = all.finish.act;
  if (all.count == 0 || all.count > INT32_MAX || l.inputs[0].elements() > INT32_MAX) return std::nullopt;
  if (act != Act::kNone && act != Act::kRelu) return std::nullopt;
  ConvolutionProblem problem;
  problem.dtype = l.inputs[0].dtype;
  problem.images = static_cast<int>(l.inputs[0].extents[0]);
  problem.channels = static_cast<int>(all.channels);
  problem.out_channels = static_cast<int>(all.out_channels);
  problem.groups = static_cast<int>(all.channels / all.group_channels);
  problem.relu = act == Act::kRelu;
  problem.residual = added.residual.present();
  problem.bias = added.bias.present() || problem.relu || problem.residual;
  const Sliding& w = all.window;
  for (size_t i = 0; i < ConvolutionProblem::kAxes; ++i) {
    problem.in[i] = w.in[i];
    problem.out[i] = w.out[i];
    problem.kernel[i] = w.kernel[i];
    problem.strides[i] = w.strides[i];
    problem.dilations[i] = w.dilations[i];
    problem.padding[i] = w.begin[i];
    const int64_t last = int64_t{w.in[i]} + 2 * w.begin[i] - int64_t{w.dilations[i]} * (w.kernel[i] - 1) - 1;
    if (w.in[i] == 0 || last < 0 || last / w.strides[i] + 1 != w.out[i]) return std::nullopt;
  }
  return problem;
}

// By cuDNN, with `own` behind it.
Status call_library(Lowering& l, Ref<const LibraryCall> library, const ConvolutionProblem& problem,
                    const Operand& w, const Added& added, const std::function<Status()>& own) {
  ConvolutionOperands operands;
  std::vector<Bind> binds{names(operands.x, l.inputs[0]), names(operands.w, w),
                          names(operands.out, l.outputs[0])};
  if (problem.bias) {
    Operand bias = added.bias;
    if (!bias.present()) {
      HEDDLE_TRY_ASSIGN(bias, l.emit.table(ir::Tensor::zeros(problem.dtype, {problem.out_channels})));
    }
    binds.push_back(names(operands.bias, bias));
  }
  if (problem.residual) binds.push_back(names(operands.residual, added.residual));
  if (const auto bytes = static_cast<int64_t>(library->workspace_bytes()); bytes > 0)
    binds.push_back(names(operands.workspace, l.emit.scratch(ir::DType::kU8, {bytes})));
  return l.emit.call(std::move(library), operands, binds, own);
}

// What depends on the batch decides between ways of the same bits only.
bool is_direct(const ConvolutionParams& params) {
  constexpr int64_t kFewOutputs = 8, kMostDepth = 4096;
  return params.group_outputs < kFewOutputs && params.group_outputs < params.out_channels &&
         params.group_channels * params.window.taps <= kMostDepth;
}

Result<Ref<const LibraryCall>> ask_library(const Lowering& l, const ConvolutionProblem& problem,
                                           const ConvolutionParams& params, const Added& added) {
  return l.emit.library_convolution(problem, [&](int images) {
    ConvolutionParams some = params;
    some.count = params.count / problem.images * images;
    return is_direct(params) ? rival_of(l, direct_of(some), added)
                             : rival_of(l, tiling_of(some, l.emit.multiprocessors()), added);
  });
}

Added added_to(const Lowering& l) {
  return {l.has(2) ? l.inputs[2] : Operand(), l.has(3) ? l.inputs[3] : Operand()};
}

Result<ConvolutionParams> params_of_conv(const Lowering& l) {
  HEDDLE_TRY_ASSIGN(const Sliding window, window_of(l));
  ConvolutionParams params = params_of(l, window, l.attributes().i64("group", 1));
  HEDDLE_TRY_ASSIGN(params.finish, finish_of(l));
  return params;
}

// Nothing where cuDNN cannot, or where it has nothing to gain.
std::optional<ConvolutionProblem> problem_channels_last(const Lowering& l, const ConvolutionParams& params) {
  const Operand& x = l.inputs[0];
  const bool is_16_bits = x.dtype == ir::DType::kBF16 || x.dtype == ir::DType::kF16;
  if (!is_16_bits || x.extents.rank() > 4 || l.constant(1) == nullptr || !fits_tiles(params))
    return std::nullopt;
  std::optional<ConvolutionProblem> problem = problem_of(l, params, added_to(l));
  if (problem.has_value()) problem->channels_last = true;
  return problem;
}

// Our kernel stands in where a run finds that cuDNN fails.
Status lower_channels_last(Lowering& l, ConvolutionParams params) {
  const Added added = added_to(l);
  const std::optional<ConvolutionProblem> problem = problem_channels_last(l, params);
  if (!problem.has_value()) return Status::internal("it has no convolution with channels last");
  HEDDLE_TRY_ASSIGN(const Ref<const LibraryCall> library, ask_library(l, *problem, params, added));
  HEDDLE_TRY_ASSIGN(const Operand w, l.emit.turned_weight(*l.constant(1)));
  params.channels_last = 1;
  const auto own = [&] { return launch_plain(l, params, w, added); };
  return library == nullptr ? own() : call_library(l, library, *problem, w, added, own);
}

Status lower_conv(Lowering& l) {
  HEDDLE_TRY_ASSIGN(const ConvolutionParams params, params_of_conv(l));
  if (l.outputs[0].channels_last) return lower_channels_last(l, params);
  const Added added = added_to(l);
  const Operand& w = l.inputs[1];
  if (l.inputs[0].dtype == ir::DType::kF64 || !fits_tiles(params)) return launch_plain(l, params, w, added);
  const Direct direct = direct_of(params);
  const Tiling tiling = tiling_of(params, l.emit.multiprocessors());
  const auto own = [&] {
    return is_direct(params) ? launch_direct(l, direct, added) : lower_tiles(l, tiling, added);
  };
  const std::optional<ConvolutionProblem> problem = problem_of(l, params, added);
  if (!problem.has_value()) return own();
  HEDDLE_TRY_ASSIGN(const Ref<const LibraryCall> library, ask_library(l, *problem, params, added));
  return library == nullptr ? own() : call_library(l, library, *problem, w, added, own);
}

Status lower_conv_transpose(Lowering& l) {
  const ir::Extents& w = l.inputs[1].extents;
  const std::vector<int64_t> kernel(w.begin() + 2, w.end());
  HEDDLE_TRY_ASSIGN(const auto window, ir::TransposedWindow::of(l.node, kernel.size(), kernel));
  HEDDLE_TRY_ASSIGN(const Sliding sliding, sliding_of(window, l.inputs[0].extents, l.outputs[0].extents));
  ConvolutionParams params = params_of(l, sliding, l.attributes().i64("group", 1));
  params.transposed = 1;
  HEDDLE_TRY_ASSIGN(params.finish, finish_of(l));
  const Added added = {l.has(2) ? l.inputs[2] : Operand(), {}};
  // Neither decides by the batch. A launch for each phase: not for too many.
  constexpr int64_t kFewOutputs = 8, kMostPhases = 64;
  const int32_t* const strides = params.window.strides;
  const bool tiles = l.inputs[0].dtype != ir::DType::kF64 && fits_tiles(params) &&
                     params.group_outputs >= kFewOutputs &&
                     int64_t{strides[0]} * strides[1] * strides[2] <= kMostPhases;
  return tiles ? lower_phases(l, params, added) : launch_plain(l, params, l.inputs[1], added);
}

Status lower_conv_integer(Lowering& l) {
  HEDDLE_TRY_ASSIGN(const Sliding window, window_of(l));
  ConvolutionParams params = params_of(l, window, l.attributes().i64("group", 1));
  const Operand x_zero = l.has(2) ? l.inputs[2] : Operand(), w_zero = l.has(3) ? l.inputs[3] : Operand();
  params.w_zero_step = w_zero.present() && w_zero.elements() > 1 ? 1 : 0;
  return l.launch(
      "convolution_i64", params,
      {names(params.x, l.inputs[0]), names(params.w, l.inputs[1]), names(params.out, l.outputs[0]),
       names(params.x_zero, x_zero), names(params.w_zero, w_zero)},
      l.grid(params.count));
}

}  // namespace

Result<bool> convolves_channels_last(const Lowering& lowering) {
  HEDDLE_TRY_ASSIGN(const ConvolutionParams params, params_of_conv(lowering));
  const std::optional<ConvolutionProblem> problem = problem_channels_last(lowering, params);
  if (!problem.has_value()) return false;
  HEDDLE_TRY_ASSIGN(const Ref<const LibraryCall> library,
                    ask_library(lowering, *problem, params, added_to(lowering)));
  return library != nullptr;
}

std::span<const LoweringEntry> convolution_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"Conv", lower_conv},
      {"ConvTranspose", lower_conv_transpose},
      {"ConvInteger", lower_conv_integer},
  };
  return kEntries;
}

}  // namespace heddle::cuda
