// creation.cpp: tensors from numbers and shapes. Those that leave their elements open hold zeros, in traced
// graphs; the numbers of a generator are not here.
#include <algorithm>

#include "term.h"

namespace heddle::torch_backend {
namespace {

Value filled(Call& call, Value number, Value shape) { return call.node("Expand", {number, shape}); }

// What fills a tensor: a number of the entry, or a fixed one.
Value number_at(Call& call, int argument) { return call.scalar(argument, call.result_dtype()); }
template <int number>
Value fixed(Call& call, int) {
  return call.literal(number, call.result_dtype());
}
Value tensor_at(Call& call, int argument) { return call.cast(call.tensor(argument), call.result_dtype()); }

// The shape is argument `size`.
template <int size, Value (*fill)(Call&, int)>
Results of_size(Call& call) {
  return filled(call, fill(call, size + 1), call.vector(call.ints(size)));
}

// The shape is that of argument 0.
template <Value (*fill)(Call&, int)>
Results like(Call& call) {
  return filled(call, fill(call, 1), shape_of(call, call.tensor(0)));
}

Results scalar_tensor(Call& call) { return call.node("Identity", {number_at(call, 0)}); }

// ---- sequences

// Whole numbers in i64, f16 and bf16 in f32.
DType counted_in(Call& call) {
  const DType dtype = wide(call.result_dtype());
  return is_float(dtype) ? dtype : DType::i64;
}

// Where the arguments start and step stand, -1: 0 and 1. The numbers are known: they decide the shape.
template <int start, int end, int step>
Results arange(Call& call) {
  const DType dtype = counted_in(call);
  const auto number = [&](int argument, double otherwise) {
    return Term(call, argument < 0 ? call.literal(otherwise, dtype) : call.scalar(argument, dtype));
  };
  const std::optional<int64_t> count = call.result_shape().at(0);
  if (!count) return call.node("Range", {number(start, 0), number(end, 0), number(step, 1)});
  Term sequence = iota(call, *count).cast(dtype);
  if (step >= 0 && !call.is(std::max(step, 0), 1)) sequence = sequence * number(step, 1);
  if (start >= 0 && !call.is(std::max(start, 0), 0)) sequence = number(start, 0) + sequence;
  return Value(sequence);
}

// From both ends to the middle, as PyTorch rounds; whole numbers are cut off from f64.
Term spaced(Call& call) {
  const DType dtype = is_float(call.result_dtype()) ? wide(call.result_dtype()) : DType::f64;
  const DType given = is_float(call.result_dtype()) ? dtype : DType::i64;
  const Term start = Term(call, call.scalar(0, given)).cast(dtype);
  const Term end = Term(call, call.scalar(1, given)).cast(dtype);
  const int64_t steps = call.integer(2);
  const Term at = iota(call, steps).cast(dtype);
  if (steps == 1) return start + at;
  const auto last = static_cast<double>(steps - 1);
  const Term step = (end - start) / last;
  return select(at < static_cast<double>(steps / 2), start + step * at, end - step * (last - at));
}

Results linspace(Call& call) { return Value(spaced(call)); }

Results logspace(Call& call) {
  const Term exponent = spaced(call);
  return Value(pow(exponent.like(call.real(3)), exponent));
}

// ---- diagonals

template <int columns>
Results eye(Call& call) {
  const Term down = {call, call.unsqueeze(iota(call, call.size(0)), {1})};
  return Value(down == iota(call, call.size(columns)));
}

template <int upper>
Results triangle(Call& call) {
  return Value(given(call, 0).with("Trilu", call.rank0(call.size(1)), {{"upper", int64_t{upper}}}));
}

// row, col, offset: the places on and below (above) a diagonal, row by row.
template <bool upper>
Results triangle_indices(Call& call) {
  const int64_t rows = call.integer(0);
  const int64_t columns = call.integer(1);
  const int64_t offset = call.integer(2);
  std::vector<int64_t> down;
  std::vector<int64_t> across;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = upper ? std::max<int64_t>(row + offset, 0) : 0;
    const int64_t past = upper ? columns : std::min(columns, row + offset + 1);
    for (int64_t column = first; column < past; ++column) {
      down.push_back(row);
      across.push_back(column);
    }
  }
  const auto count = static_cast<int64_t>(down.size());
  down.insert(down.end(), across.begin(), across.end());
  return call.constant(Tensor::of<int64_t>({2, count}, std::span<const int64_t>(down)));
}

}  // namespace

std::span<const Entry> creation_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::full", of_size<0, number_at>},
      {"aten::zeros", of_size<0, fixed<0>>},
      {"aten::ones", of_size<0, fixed<1>>},
      {"aten::empty.memory_format", of_size<0, fixed<0>>},
      {"aten::empty_strided", of_size<0, fixed<0>>},
      {"aten::new_full", of_size<1, number_at>},
      {"aten::new_zeros", of_size<1, fixed<0>>},
      {"aten::new_ones", of_size<1, fixed<1>>},
      {"aten::new_empty", of_size<1, fixed<0>>},
      {"aten::new_empty_strided", of_size<1, fixed<0>>},
      {"aten::full_like", like<number_at>},
      {"aten::zeros_like", like<fixed<0>>},
      {"aten::ones_like", like<fixed<1>>},
      {"aten::empty_like", like<fixed<0>>},
      {"aten::fill.Scalar", like<number_at>},
      {"aten::fill.Tensor", like<tensor_at>},
      {"aten::zero", like<fixed<0>>},
      {"aten::scalar_tensor", scalar_tensor},
      {"aten::arange", arange<-1, 0, -1>, Numbers::known},
      {"aten::arange.start", arange<0, 1, -1>, Numbers::known},
      {"aten::arange.start_step", arange<0, 1, 2>, Numbers::known},
      {"aten::linspace", linspace},
      {"aten::logspace", logspace},
      {"aten::eye", eye<0>},
      {"aten::eye.m", eye<1>},
      {"aten::tril", triangle<0>},
      {"aten::triu", triangle<1>},
      {"aten::tril_indices", triangle_indices<false>},
      {"aten::triu_indices", triangle_indices<true>},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
