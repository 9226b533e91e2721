// movement.h: the lowerings of the operators that move elements without computing, by file.
//
//   What       views.cpp reads through strides; concat.cpp, pad.cpp, trilu.cpp and bit_cast.cpp hold what
//              their names say; generators.cpp makes elements; gathers.cpp reads by index; order.cpp sorts
//              and scans along an axis; scatters.cpp writes by index; resize.cpp and grid_sample.cpp
//              interpolate.
//   Threads    As lowering.h.
#pragma once

#include <vector>

#include "drivers/host/lowering.h"

namespace heddle::host {

using LoweredStep = Result<std::unique_ptr<Step>>;

LoweredStep lower_transpose(Lowering& lowering);
LoweredStep lower_slice(Lowering& lowering);
LoweredStep lower_expand(Lowering& lowering);
LoweredStep lower_tile(Lowering& lowering);
LoweredStep lower_split(Lowering& lowering);

LoweredStep lower_concat(Lowering& lowering);
LoweredStep lower_pad(Lowering& lowering);
LoweredStep lower_trilu(Lowering& lowering);
LoweredStep lower_one_hot(Lowering& lowering);
LoweredStep lower_constant_of_shape(Lowering& lowering);
LoweredStep lower_range(Lowering& lowering);
LoweredStep lower_extents(Lowering& lowering);  // Shape, Size

LoweredStep lower_gather(Lowering& lowering);
LoweredStep lower_gather_elements(Lowering& lowering);
LoweredStep lower_gather_nd(Lowering& lowering);

LoweredStep lower_top_k(Lowering& lowering);
LoweredStep lower_cumulative(Lowering& lowering);  // CumSum, CumProd

LoweredStep lower_scatter_elements(Lowering& lowering);
LoweredStep lower_scatter_nd(Lowering& lowering);

LoweredStep lower_resize(Lowering& lowering);
LoweredStep lower_grid_sample(Lowering& lowering);
LoweredStep lower_bit_cast(Lowering& lowering);

// Everything left of an axis, the axis, everything right of it: element (o, a, i) lies at
// (o * extent + a) * inner + i.
struct Lanes {
  int64_t outer = 1;
  int64_t extent = 1;
  int64_t inner = 1;
  Lanes(const ir::Extents& extents, size_t axis);
};

Result<size_t> axis_of(const Lowering& lowering, int64_t otherwise);  // the attribute, for input 0
// The numbers of a small integer input, which shapes or constants have to tell by now.
Result<std::vector<int64_t>> numbers_of(const Lowering& lowering, size_t input, std::string_view argument);
int64_t read_index(const RunContext& context, const Operand& operand, int64_t at);  // from i32 or i64

}  // namespace heddle::host
