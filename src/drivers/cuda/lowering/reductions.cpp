// Reductions over axes.
#include "drivers/cuda/lowering/reductions.h"

#include <algorithm>
#include <cmath>

#include "base/made_once.h"
#include "ir/op.h"

namespace heddle::cuda {
namespace {

struct Reduction {
  std::string_view op, kernel;
};
constexpr Reduction kReductions[] = {
    {"ReduceSum", "reduce_sum"},           {"ReduceProd", "reduce_product"}, {"ReduceMean", "reduce_mean"},
    {"ReduceMax", "reduce_greatest"},      {"ReduceMin", "reduce_least"},    {"ReduceL2", "reduce_length"},
    {"ReduceSumSquare", "reduce_squares"},
};

struct Least {
  int64_t least, greatest;
};
Least limits_of(ir::DType dtype) {
  if (dtype == ir::DType::kBool) return {0, 1};
  const int64_t bits = 8 * ir::size_of(dtype);
  if (ir::is_unsigned(dtype)) return {0, static_cast<int64_t>(~uint64_t{0} >> (64 - bits))};
  const auto greatest = static_cast<int64_t>(~uint64_t{0} >> (65 - bits));
  return {-greatest - 1, greatest};
}

// What no elements give.
void set_empty(const Lowering& l, ReduceParams& params) {
  if (l.node.is("ReduceProd")) params.empty = params.empty_integer = 1;
  if (l.node.is("ReduceMean")) params.empty = NAN;
  if (l.node.is("ReduceMax")) {
    params.empty = -INFINITY;
    params.empty_integer = limits_of(l.inputs[0].dtype).least;
  }
  if (l.node.is("ReduceMin")) {
    params.empty = INFINITY;
    params.empty_integer = limits_of(l.inputs[0].dtype).greatest;
  }
}

Result<std::vector<char>> reduced_axes(const Lowering& l) {
  const size_t rank = l.inputs[0].extents.rank();
  std::vector<int64_t> axes;
  if (l.has(1)) {
    HEDDLE_TRY_ASSIGN(axes, l.integers(1, "axes"));
  }
  const bool none = l.attributes().i64("noop_with_empty_axes") != 0;
  std::vector<char> reduced(rank, axes.empty() && !none ? 1 : 0);
  for (const int64_t axis : axes) {
    HEDDLE_TRY_ASSIGN(const size_t normal, ir::normalize_axis(axis, rank));
    reduced[normal] = 1;
  }
  return reduced;
}

// Rows and columns as kernels/reduce.h has them. How many threads an element has, its length alone decides.
Teams reducers_for(const ReduceParams& params, int64_t word_bytes, int multiprocessors) {
  constexpr int64_t kMostBlocks = 1 << 16, kLeastThreads = 32, kThreadsOfAll = 128;
  const bool columns = params.columns != 0;
  const int64_t each = columns ? 8 : 16;  // elements that one thread takes, until there are `most` threads
  const int64_t most = columns ? 64 : 512, beside = columns ? 8 : 1;  // of neighbours, at least so many
  int64_t lanes = 1;
  while (lanes < most && lanes * each < params.count) lanes *= 2;
  // Few elements are spread over all multiprocessors.
  int64_t threads = std::max(lanes * beside, kLeastThreads);
  while (threads < kThreadsOfAll && params.outputs * lanes > threads * multiprocessors) threads *= 2;
  const int64_t teams = threads / lanes, blocks = (params.outputs + teams - 1) / teams;
  const int64_t words = columns ? threads : threads / kWarp;
  return {static_cast<int32_t>(lanes),
          {std::clamp<int64_t>(blocks, 1, kMostBlocks), threads, std::max<int64_t>(words * word_bytes, 16)}};
}

Status lower_reduction(Lowering& l) {
  HEDDLE_TRY_ASSIGN(const std::vector<char> reduced, reduced_axes(l));
  ReduceParams params;
  set_empty(l, params);
  for (const Reduction& reduction : kReductions) {
    if (reduction.op == l.node.op->name) return launch_reduction(l, reduction.kernel, reduced, params);
  }
  return Status::internal("it is no reduction");
}

}  // namespace

Status launch_reduction(Lowering& l, std::string_view kernel, const std::vector<char>& reduced,
                        ReduceParams params) {
  const Operand& in = l.inputs[0];
  const std::vector<int64_t> strides = in.strides();
  std::vector<int64_t> extents[2], steps[2];
  for (size_t axis = 0; axis < reduced.size(); ++axis) {
    extents[reduced[axis] != 0].push_back(in.extents[axis]);
    steps[reduced[axis] != 0].push_back(strides[axis]);
  }
  const Walk kept = walk_of(extents[0], {steps[0]}), over = walk_of(extents[1], {steps[1]});
  params.in_type = type_of(in.dtype);
  params.out_type = type_of(l.outputs[0].dtype);
  params.outputs = kept.count;
  params.count = over.count;
  params.kept = kept.axes;
  params.reduced = over.axes;
  std::copy(kept.strides[0].begin(), kept.strides[0].end(), params.kept_strides);
  std::copy(over.strides[0].begin(), over.strides[0].end(), params.reduced_strides);
  // By the shape's axes, whatever their extents: the order of a row's sum does not depend on the batch.
  const size_t last = in.channels_last ? 1 : reduced.size() - 1;
  params.columns = !reduced.empty() && reduced[last] == 0 ? 1 : 0;
  params.in_a_row = over.strides[0].empty() || over.strides[0] == std::vector<int64_t>{1} ? 1 : 0;
  const Teams teams = reducers_for(params, computed_in(in.dtype) == "_f32" ? 4 : 8, l.emit.multiprocessors());
  params.lanes = teams.lanes;
  const std::string_view in_type = computed_in(in.dtype);
  return l.launch(text(kernel, in_type == "_u64" ? "_i64" : in_type), params,
                  {names(params.in, in), names(params.out, l.outputs[0])}, teams.grid);
}

std::span<const LoweringEntry> reduction_lowerings() {
  static constinit MadeOnce<const std::vector<LoweringEntry>> all;
  return all.get([] {
    std::vector<LoweringEntry> entries;
    for (const Reduction& reduction : kReductions) entries.push_back({reduction.op, lower_reduction});
    return entries;
  });
}

}  // namespace heddle::cuda
