// normalization.cpp: normalisations, softmax, and dropout where it does nothing.
#include <cmath>
#include <limits>

#include "../table.h"
#include "parts.h"

namespace heddle::torch_backend {
namespace {

Value ones(Call& call, const std::vector<Int>& sizes, double value, DType dtype) {
  return call.expand(call.literal(value, dtype), sizes);
}

Value weight_or(Call& call, Value weight, const std::vector<Int>& sizes, double otherwise, DType dtype) {
  return present(weight) ? call.cast(weight, dtype) : ones(call, sizes, otherwise, dtype);
}

struct Moments {
  Value mean, inverse;  // 1 / standard deviation
  Value centred;
};

// Axes stay, with extent 1.
Moments moments(Call& call, Value x, const std::vector<int64_t>& axes, double eps) {
  const DType dtype = call.dtype(x);
  const Value mean = reduce(call, "ReduceMean", x, axes, true);
  const Value centred = call.node("Sub", {x, mean});
  const Value variance = reduce(call, "ReduceMean", call.node("Mul", {centred, centred}), axes, true);
  const Value deviation = call.node("Sqrt", {call.node("Add", {variance, call.literal(eps, dtype)})});
  return {mean, call.node("Reciprocal", {deviation}), centred};
}

std::vector<int64_t> from_to(int64_t begin, int64_t end) {
  std::vector<int64_t> axes;
  for (; begin < end; ++begin) axes.push_back(begin);
  return axes;
}

// ---- over the last axes

int first_normal(Call& call, Value x) { return call.rank(x) - static_cast<int>(call.ints(1).size()); }

Value layer_output(Call& call) {
  const Value x = widened(call, 0);
  return layer_norm(call, x, first_normal(call, x), widened(call, 2), widened(call, 3), call.real(4));
}
Results layer_norm_entry(Call& call) { return layer_output(call); }

Results native_layer_norm(Call& call) {
  const Value x = widened(call, 0);
  const Moments m = moments(call, x, from_to(first_normal(call, x), call.rank(x)), call.real(4));
  return {layer_output(call), m.mean, m.inverse};
}

double rms_epsilon(Call& call, Value x) {
  if (call.has(3)) return call.real(3);
  return call.dtype(x) == DType::f64 ? std::numeric_limits<double>::epsilon()
                                     : std::numeric_limits<float>::epsilon();
}

Value rms_output(Call& call) {
  const Value x = widened(call, 0);
  const int axis = first_normal(call, x);
  const Value weight = weight_or(call, call.tensor(2), {1}, 1, call.dtype(x));
  return call.node("RMSNormalization", {x, weight},
                   {{"axis", int64_t{axis}}, {"epsilon", rms_epsilon(call, x)}});
}
Results rms_norm(Call& call) { return rms_output(call); }

Results fused_rms_norm(Call& call) {
  const Value x = widened(call, 0);
  const std::vector<int64_t> axes = from_to(first_normal(call, x), call.rank(x));
  const Value mean = reduce(call, "ReduceMean", call.node("Mul", {x, x}), axes, true);
  const Value sum = call.node("Add", {mean, call.literal(rms_epsilon(call, x), call.dtype(x))});
  return {rms_output(call), call.node("Reciprocal", {call.node("Sqrt", {sum})})};
}

// ---- over groups of channels

Value group_norm(Call& call, int weight, int64_t groups, double eps) {
  const Value x = widened(call, 0);
  const DType dtype = call.dtype(x);
  const std::vector<Int> channels = {call.size_of(x, 1)};
  return call.node("GroupNormalization",
                   {x, weight_or(call, call.tensor(weight), channels, 1, dtype),
                    weight_or(call, call.tensor(weight + 1), channels, 0, dtype)},
                   {{"num_groups", groups}, {"epsilon", eps}});
}

Results group_norm_entry(Call& call) { return group_norm(call, 2, call.integer(1), call.real(4)); }

Results native_group_norm(Call& call) {
  const Value x = widened(call, 0);
  const int64_t groups = call.integer(6);
  const Int size = times(call, call.extent(x, 1) / groups, call.size(5));
  const Value grouped = call.reshape(x, {call.size_of(x, 0), groups, size});
  const Moments m = moments(call, grouped, {2}, call.real(7));
  return {group_norm(call, 1, groups, call.real(7)), call.squeeze(m.mean, {2}), call.squeeze(m.inverse, {2})};
}

// ---- over the batch

struct BatchArguments {  // positions of the arguments
  int mean, variance, eps;
};

Value known_statistics(Call& call, BatchArguments at) {
  const Value x = widened(call, 0);
  const DType dtype = call.dtype(x);
  const std::vector<Int> channels = {call.size_of(x, 1)};
  return call.node("BatchNormalization",
                   {x, weight_or(call, call.tensor(1), channels, 1, dtype),
                    weight_or(call, call.tensor(2), channels, 0, dtype),
                    weight_or(call, call.tensor(at.mean), channels, 0, dtype),
                    weight_or(call, call.tensor(at.variance), channels, 1, dtype)},
                   {{"epsilon", call.real(at.eps)}});
}

// Statistics are given back in the dtype of the weights, where there are some.
DType statistics_dtype(Call& call) { return call.dtype(call.tensor(call.has(1) ? 1 : 0)); }

// Of the statistics that were given nothing is given back, as on the CPU; the Meta kernels of some of these
// operators say [channels], so the dtypes are settled here.
Results with_statistics(Call& call, BatchArguments at) {
  const Value none = call.constant(Tensor::zeros(statistics_dtype(call), {0}));
  return {call.cast(known_statistics(call, at), call.dtype(call.tensor(0))), none, none};
}

// Statistics of this batch: normalised, mean, 1 / deviation.
Results own_statistics(Call& call, int eps) {
  const Value x = widened(call, 0);
  const DType dtype = call.dtype(x);
  const int rank = call.rank(x);
  std::vector<int64_t> axes = from_to(2, rank);
  axes.insert(axes.begin(), 0);
  const Moments m = moments(call, x, axes, call.real(eps));
  std::vector<Int> beside(static_cast<size_t>(rank) - 1, Int(1));
  beside[0] = call.size_of(x, 1);
  Value y = call.node("Mul", {m.centred, m.inverse});
  if (call.has(1)) y = call.node("Mul", {y, call.reshape(call.cast(call.tensor(1), dtype), beside)});
  if (call.has(2)) y = call.node("Add", {y, call.reshape(call.cast(call.tensor(2), dtype), beside)});
  const auto saved = [&](Value value) {
    return call.cast(call.reshape(value, {-1}), statistics_dtype(call));
  };
  return {call.cast(y, call.dtype(call.tensor(0))), saved(m.mean), saved(m.inverse)};
}

void refuse_update(Call& call, int mean) {
  if (call.has(mean)) call.unsupported("training updates the running statistics; call eval() on the module");
}

Results native_batch_norm(Call& call) {
  if (!call.flag(5)) return with_statistics(call, {3, 4, 7});
  refuse_update(call, 3);
  return own_statistics(call, 7);
}
Results batch_norm(Call& call) {
  if (!call.flag(5)) return known_statistics(call, {3, 4, 7});
  refuse_update(call, 3);
  return own_statistics(call, 7)[0];
}
Results batch_norm_no_training(Call& call) { return with_statistics(call, {3, 4, 6}); }
Results batch_norm_no_update(Call& call) {
  Results three = with_statistics(call, {3, 4, 6});
  three.push_back(call.constant(Tensor::zeros(DType::u8, {0})));
  return three;
}
Results batch_norm_no_stats(Call& call) { return own_statistics(call, 5); }

Results instance_norm(Call& call) {
  if (!call.flag(5)) return known_statistics(call, {3, 4, 7});
  refuse_update(call, 3);
  const Value x = widened(call, 0);
  const std::vector<Int> channels = {call.size_of(x, 1)};
  return call.node("InstanceNormalization",
                   {x, weight_or(call, call.tensor(1), channels, 1, call.dtype(x)),
                    weight_or(call, call.tensor(2), channels, 0, call.dtype(x))},
                   {{"epsilon", call.real(7)}});
}

// ---- softmax

Value soft(Call& call, std::string_view op, Value x, int64_t axis) {
  if (call.rank(x) == 0) return call.reshape(soft(call, op, call.reshape(x, {1}), 0), {});
  return call.node(op, {x}, {{"axis", int64_t{axis_in(axis, call.rank(x))}}});
}

template <bool logarithm>
Results softmax(Call& call) {
  return soft(call, logarithm ? "LogSoftmax" : "Softmax", widened(call, 0), call.integer(1));
}

// The operand is cast to a dtype that is given before all else.
Value chosen(Call& call) {
  const DType dtype = call.dtype_argument(2).value_or(call.dtype(call.tensor(0)));
  return call.cast(call.tensor(0), wide(dtype));
}

template <bool logarithm>
Results softmax_of_dtype(Call& call) {
  return soft(call, logarithm ? "LogSoftmax" : "Softmax", chosen(call), call.integer(1));
}

// Rows of -inf give zeros.
Results safe_softmax(Call& call) {
  const Value x = chosen(call);
  const DType dtype = call.dtype(x);
  const Value y = soft(call, "Softmax", x, call.integer(1));
  const std::vector<int64_t> axes = call.rank(x) == 0 ? std::vector<int64_t>{} : std::vector{call.integer(1)};
  const Value none = call.node("Equal", {reduce(call, "ReduceMax", x, axes, true),
                                         call.literal(-std::numeric_limits<double>::infinity(), dtype)});
  return call.node("Where", {none, call.literal(0, dtype), y});
}

// ---- dropout

Value undropped(Call& call, bool train) {
  if (train && call.real(1) != 0) call.unsupported("dropout in training; call eval() on the module");
  return identity(call, call.tensor(0));
}

Results dropout(Call& call) { return undropped(call, call.flag(2)); }

Results native_dropout(Call& call) {
  const Value x = undropped(call, !call.has(2) || call.flag(2));
  return {x, call.expand(call.literal(1, DType::boolean), sizes_of(call, call.tensor(0)))};
}

// (weight, norms): v scaled to norms of g along all axes but one.
Results weight_norm(Call& call) {
  const Value v = call.tensor(0), g = call.tensor(1);
  const DType wide_dtype = wide(call.dtype(v));
  const int kept = from_front(static_cast<int>(call.integer(2)), call.rank(v));
  std::vector<int64_t> axes;
  for (int axis = 0; axis < call.rank(v); ++axis) {
    if (axis != kept) axes.push_back(axis);
  }
  const Value x = call.cast(v, wide_dtype);
  const Value norms = call.node("ReduceL2", {x, call.vector(axes)}, {{"keepdims", int64_t{1}}});
  return {call.node("Mul", {x, call.node("Div", {call.cast(g, wide_dtype), norms})}), norms};
}

}  // namespace

Value layer_norm(Call& call, Value x, int axis, Value weight, Value bias, double eps) {
  std::vector<Value> inputs = {x, weight_or(call, weight, {1}, 1, call.dtype(x))};
  if (present(bias)) inputs.push_back(call.cast(bias, call.dtype(x)));
  return call.node("LayerNormalization", inputs, {{"axis", static_cast<int64_t>(axis)}, {"epsilon", eps}});
}

std::span<const Entry> normalization_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::_weight_norm_interface", weight_norm},
      {"aten::native_layer_norm", native_layer_norm},
      {"aten::layer_norm", layer_norm_entry},
      {"aten::rms_norm", rms_norm},
      {"aten::_fused_rms_norm", fused_rms_norm},
      {"aten::native_group_norm", native_group_norm},
      {"aten::group_norm", group_norm_entry},
      {"aten::native_batch_norm", native_batch_norm},
      {"aten::batch_norm", batch_norm},
      {"aten::_native_batch_norm_legit", native_batch_norm},
      {"aten::_native_batch_norm_legit.no_stats", batch_norm_no_stats},
      {"aten::_native_batch_norm_legit_no_training", batch_norm_no_training},
      {"aten::_batch_norm_no_update", batch_norm_no_update},
      {"aten::instance_norm", instance_norm},
      {"aten::_softmax", softmax<false>},
      {"aten::_log_softmax", softmax<true>},
      {"aten::softmax.int", softmax_of_dtype<false>},
      {"aten::special_softmax", softmax_of_dtype<false>},
      {"aten::log_softmax.int", softmax_of_dtype<true>},
      {"aten::special_log_softmax", softmax_of_dtype<true>},
      {"aten::_safe_softmax", safe_softmax},
      {"aten::dropout", dropout},
      {"aten::alpha_dropout", dropout},
      {"aten::feature_dropout", dropout},
      {"aten::feature_alpha_dropout", dropout},
      {"aten::native_dropout", native_dropout},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
