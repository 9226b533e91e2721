// rearrangement.cpp: results put together of their operands' elements: joins, repeats, borders, windows.
#include <algorithm>
#include <limits>

#include "../table.h"
#include "parts.h"

namespace heddle::torch_backend {
namespace {

constexpr int64_t kBeforeFirst = std::numeric_limits<int64_t>::min();

// ---- joins

Value joined(Call& call, const std::vector<Value>& values, int64_t axis) {
  return values.size() == 1 ? identity(call, values[0]) : call.node("Concat", values, {{"axis", axis}});
}

// Tensors of shape [0] fit everywhere.
Results cat(Call& call) {
  const size_t rank = call.result_shape().size();
  std::vector<Value> values;
  for (const Value value : call.tensors(0)) {
    if (static_cast<size_t>(call.rank(value)) == rank)
      values.push_back(call.cast(value, call.result_dtype()));
  }
  if (values.empty()) return identity(call, call.tensors(0).at(0));
  return joined(call, values, axis_in(call.integer(1), static_cast<int>(rank)));
}

Results stack(Call& call) {
  const int64_t axis = axis_in(call.integer(1), static_cast<int>(call.result_shape().size()));
  std::vector<Value> values;
  for (const Value value : call.tensors(0))
    values.push_back(call.unsqueeze(call.cast(value, call.result_dtype()), {axis}));
  return joined(call, values, axis);
}

// ---- repeats

// As many axes as there are repeats, or more.
Results repeat(Call& call) {
  Value x = call.tensor(0);
  std::vector<Int> times = call.ints(1);
  std::vector<int64_t> fresh;
  for (int i = call.rank(x); i < static_cast<int>(times.size()); ++i)
    fresh.push_back(static_cast<int64_t>(fresh.size()));
  if (!fresh.empty()) x = call.unsqueeze(x, fresh);
  times.insert(times.begin(), static_cast<size_t>(call.rank(x)) - times.size(), Int(1));
  if (times.empty()) return identity(call, x);
  return call.node("Tile", {x, call.vector(times)});
}

Value flat(Call& call, Value x) { return call.reshape(x, {-1}); }

Results repeat_interleave(Call& call) {
  const Value x = call.has(2) ? call.tensor(0) : flat(call, call.tensor(0));
  const int axis = call.has(2) ? axis_in(call.integer(2), call.rank(x)) : 0;
  std::vector<Int> sizes = sizes_of(call, x), spread;
  if (sizes.empty()) sizes.push_back(1);
  for (size_t i = 0; i < sizes.size(); ++i) {
    spread.push_back(sizes[i]);
    if (i == static_cast<size_t>(axis)) spread.push_back(call.size(1));
  }
  sizes[static_cast<size_t>(axis)] = times(call, sizes[static_cast<size_t>(axis)], call.size(1));
  const Value grown = call.unsqueeze(call.rank(x) == 0 ? flat(call, x) : x, {axis + 1});
  return call.reshape(call.expand(grown, spread), sizes);
}

// ---- orders

Results flip(Call& call) {
  const Value x = call.tensor(0);
  std::vector<int64_t> axes = call.integers(1);
  if (axes.empty() || call.rank(x) == 0) return identity(call, x);
  for (int64_t& axis : axes) axis = axis_in(axis, call.rank(x));
  const std::vector<int64_t> last(axes.size(), -1), first(axes.size(), kBeforeFirst);
  return call.node("Slice", {x, call.vector(last), call.vector(first), call.vector(axes), call.vector(last)});
}

Value rolled(Call& call, Value x, int64_t shift, int axis) {
  const int64_t extent = call.extent(x, axis);
  if (extent == 0) return x;
  const int64_t cut = ((-shift) % extent + extent) % extent;
  if (cut == 0) return x;
  return call.node("Concat", {call.slice(x, axis, cut, kEnd), call.slice(x, axis, 0, cut)},
                   {{"axis", static_cast<int64_t>(axis)}});
}

Results roll(Call& call) {
  const Value x = call.tensor(0);
  const std::vector<int64_t> shifts = call.integers(1), axes = call.integers(2);
  if (call.rank(x) == 0) return identity(call, x);
  if (axes.empty()) return call.reshape(rolled(call, flat(call, x), shifts.at(0), 0), sizes_of(call, x));
  Value moved = identity(call, x);
  for (size_t i = 0; i < axes.size(); ++i)
    moved = rolled(call, moved, shifts.at(i), axis_in(axes[i], call.rank(x)));
  return moved;
}

// ---- borders

// By axis; PyTorch names the last one first. Negative numbers cut.
struct Border {
  std::vector<Int> begin, end;
};

Border border(const std::vector<Int>& pads, int rank) {
  Border sides{std::vector<Int>(static_cast<size_t>(rank), Int(0)), {}};
  sides.end = sides.begin;
  for (size_t i = 0; i < pads.size() / 2; ++i) {
    sides.begin[static_cast<size_t>(rank) - 1 - i] = pads[2 * i];
    sides.end[static_cast<size_t>(rank) - 1 - i] = pads[2 * i + 1];
  }
  return sides;
}

bool cuts(const Int& pad) { return pad.known && *pad.known < 0; }

Value cut(Call& call, Value x, const Border& border) {
  for (size_t axis = 0; axis < border.begin.size(); ++axis) {
    const Int &first = border.begin[axis], &last = border.end[axis];
    if (!cuts(first) && !cuts(last)) continue;
    x = call.slice(x, static_cast<int>(axis), cuts(first) ? -*first.known : 0,
                   cuts(last) ? *last.known : kEnd);
  }
  return x;
}

Value grown(Call& call, Value x, const Border& border, std::string_view mode, Value fill) {
  std::vector<Int> pads;
  for (const std::vector<Int>* side : {&border.begin, &border.end}) {
    for (const Int& pad : *side) pads.push_back(cuts(pad) ? Int(0) : pad);
  }
  if (std::ranges::all_of(pads, [](const Int& pad) { return pad.known == 0; })) return identity(call, x);
  return call.node("Pad", {x, call.vector(pads), fill}, {{"mode", std::string(mode)}});
}

// Borders are made of what is there before anything is cut; but what wraps around is what is left.
Value bordered(Call& call, Value x, const std::vector<Int>& pads, std::string_view mode, Value fill) {
  const Border sides = border(pads, call.rank(x));
  if (mode == "wrap") return grown(call, cut(call, x, sides), sides, mode, fill);
  return cut(call, grown(call, x, sides, mode, fill), sides);
}

Results constant_pad(Call& call) {
  const Value x = call.tensor(0);
  return bordered(call, x, call.ints(1), "constant", call.scalar(2, call.dtype(x)));
}

Results reflection_pad(Call& call) {
  return bordered(call, call.tensor(0), call.ints(1), "reflect", kAbsent);
}
Results replication_pad(Call& call) { return bordered(call, call.tensor(0), call.ints(1), "edge", kAbsent); }

Results pad(Call& call) {
  const Value x = call.tensor(0);
  const std::string_view mode = call.text(2);
  if (mode == "reflect") return reflection_pad(call);
  if (mode == "replicate") return replication_pad(call);
  if (mode == "circular") return bordered(call, x, call.ints(1), "wrap", kAbsent);
  return bordered(call, x, call.ints(1), "constant",
                  call.literal(call.has(3) ? call.real(3) : 0, call.dtype(x)));
}

// ---- channels and places

// The last axes of an image apart from the rest, which may be none.
std::vector<Int> leading(Call& call, Value x, int own) {
  std::vector<Int> sizes = sizes_of(call, x);
  sizes.erase(sizes.end() - own, sizes.end());
  return sizes;
}

std::vector<Int> followed_by(std::vector<Int> sizes, const std::vector<Int>& more) {
  sizes.insert(sizes.end(), more.begin(), more.end());
  return sizes;
}

// The last `order.size()` axes permuted.
Value reordered(Call& call, Value x, const std::vector<int64_t>& order) {
  const int64_t first = call.rank(x) - static_cast<int64_t>(order.size());
  std::vector<int64_t> all;
  for (int64_t axis = 0; axis < first; ++axis) all.push_back(axis);
  for (const int64_t axis : order) all.push_back(first + axis);
  return call.transpose(x, all);
}

Results pixel_shuffle(Call& call) {
  const Value x = call.tensor(0);
  const int64_t r = call.integer(1), channels = call.extent(x, -3) / (r * r);
  const Int height = call.size_of(x, -2), width = call.size_of(x, -1);
  const std::vector<Int> lead = leading(call, x, 3);
  const Value apart = call.reshape(x, followed_by(lead, {channels, r, r, height, width}));
  return call.reshape(reordered(call, apart, {0, 3, 1, 4, 2}),
                      followed_by(lead, {channels, times(call, height, r), times(call, width, r)}));
}

Results pixel_unshuffle(Call& call) {
  const Value x = call.tensor(0);
  const int64_t r = call.integer(1), channels = call.extent(x, -3);
  const int64_t height = call.extent(x, -2) / r, width = call.extent(x, -1) / r;
  const std::vector<Int> lead = leading(call, x, 3);
  const Value apart = call.reshape(x, followed_by(lead, {channels, height, r, width, r}));
  return call.reshape(reordered(call, apart, {0, 2, 4, 1, 3}),
                      followed_by(lead, {channels * r * r, height, width}));
}

Results channel_shuffle(Call& call) {
  const Value x = call.tensor(0);
  const int64_t groups = call.integer(1), channels = call.extent(x, 1);
  const std::vector<Int> sizes = sizes_of(call, x);
  std::vector<Int> apart = {sizes[0], groups, channels / groups};
  apart.insert(apart.end(), sizes.begin() + 2, sizes.end());
  return call.reshape(call.swap_axes(call.reshape(x, apart), 1, 2), sizes);
}

// A vector on a diagonal of a matrix, zeros elsewhere: each place reads the vector or the zero behind it.
Results diag_embed(Call& call) {
  const Value x = call.tensor(0);
  const int rank = call.rank(x) + 1;
  const int64_t offset = call.integer(1), count = call.extent(x, -1), side = count + std::abs(offset);
  const int row_axis = axis_in(call.integer(2), rank), column_axis = axis_in(call.integer(3), rank);
  std::vector<Int> pads(2, Int(0));
  pads[1] = 1;
  const Value with_zero = bordered(call, x, pads, "constant", call.literal(0, call.dtype(x)));
  std::vector<int64_t> places;
  for (int64_t i = 0; i < side * side; ++i) {
    const int64_t row = i / side, column = i % side;
    places.push_back(column - row == offset ? std::min(row, column) : count);
  }
  const Value matrices = call.node("Gather", {with_zero, constant_i64(call, {side, side}, places)},
                                   {{"axis", int64_t{rank - 2}}});
  std::vector<int64_t> order;
  for (int axis = 0, next = 0; axis < rank; ++axis)
    order.push_back(axis == row_axis ? rank - 2 : axis == column_axis ? rank - 1 : next++);
  return call.transpose(matrices, order);
}

// ---- windows of an image in columns

struct Blocks {
  std::vector<int64_t> kernel, dilation, padding, stride;
  Blocks(const Call& call, int first)
      : kernel(per_axis(call, first, 2)),
        dilation(per_axis(call, first + 1, 2)),
        padding(per_axis(call, first + 2, 2)),
        stride(per_axis(call, first + 3, 2)) {}
};

Results im2col(Call& call) {
  const Blocks blocks(call, 1);
  Value x = call.tensor(0);
  const bool batched = call.rank(x) == 4;
  if (!batched) x = call.unsqueeze(x, {0});
  const Int batch = call.size_of(x, 0);
  int64_t columns = 1;
  x = bordered(call, x, {blocks.padding[1], blocks.padding[1], blocks.padding[0], blocks.padding[0]},
               "constant", call.literal(0, call.dtype(x)));
  const int64_t channels = call.extent(x, 1);
  for (size_t i = 0; i < 2; ++i) {
    const int axis = static_cast<int>(2 + 2 * i);
    const int64_t taps = blocks.kernel[i];
    const int64_t count = (call.extent(x, axis) - blocks.dilation[i] * (taps - 1) - 1) / blocks.stride[i] + 1;
    std::vector<int64_t> places;
    for (int64_t at = 0; at < taps * count; ++at)
      places.push_back(at / count * blocks.dilation[i] + at % count * blocks.stride[i]);
    x = call.node("Gather", {x, constant_i64(call, {taps, count}, places)},
                  {{"axis", static_cast<int64_t>(axis)}});
    columns *= count;
  }
  const int64_t rows = channels * blocks.kernel[0] * blocks.kernel[1];
  const Value by_tap = call.transpose(x, {0, 1, 2, 4, 3, 5});
  return call.reshape(by_tap,
                      batched ? std::vector<Int>{batch, rows, columns} : std::vector<Int>{rows, columns});
}

Results col2im(Call& call) {
  const Blocks blocks(call, 2);
  const std::vector<int64_t> image = per_axis(call, 1, 2);
  Value x = widened(call, 0);
  const bool batched = call.rank(x) == 3;
  if (!batched) x = call.unsqueeze(x, {0});
  std::vector<int64_t> pads = blocks.padding;
  pads.insert(pads.end(), blocks.padding.begin(), blocks.padding.end());
  const Value y = call.node("Col2Im", {x, call.vector(image), call.vector(blocks.kernel)},
                            {{"dilations", blocks.dilation}, {"pads", pads}, {"strides", blocks.stride}});
  return batched ? y : call.squeeze(y, {0});
}

}  // namespace

std::span<const Entry> rearrangement_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::cat", cat},
      {"aten::concat", cat},
      {"aten::stack", stack},
      {"aten::repeat", repeat},
      {"aten::tile", repeat},
      {"aten::repeat_interleave.self_int", repeat_interleave},
      {"aten::flip", flip},
      {"aten::roll", roll},
      {"aten::constant_pad_nd", constant_pad},
      {"aten::reflection_pad1d", reflection_pad},
      {"aten::reflection_pad2d", reflection_pad},
      {"aten::reflection_pad3d", reflection_pad},
      {"aten::replication_pad1d", replication_pad},
      {"aten::replication_pad2d", replication_pad},
      {"aten::replication_pad3d", replication_pad},
      {"aten::pad", pad},
      {"aten::pixel_shuffle", pixel_shuffle},
      {"aten::pixel_unshuffle", pixel_unshuffle},
      {"aten::channel_shuffle", channel_shuffle},
      {"aten::native_channel_shuffle", channel_shuffle},
      {"aten::diag_embed", diag_embed},
      {"aten::im2col", im2col},
      {"aten::col2im", col2im},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
