// Windows, Fourier transforms and the mel scale. A transform is a product with a matrix of sines: exact, and
// fast for the frame lengths of speech.
#include <cmath>
#include <string>
#include <vector>

#include "onnx/operators.h"
#include "onnx/operators/parts.h"
#include "onnx/proto.h"

namespace heddle::onnx {
namespace {

using ir::DType;
using ir::ValueId;

constexpr double kPi = 3.14159265358979323846;

Result<DType> take_dtype(Call& call, std::string_view attribute) {
  HEDDLE_TRY_ASSIGN(const int64_t given, call.take_i64(attribute, proto::TensorProto::FLOAT));
  const int data_type = given >= 0 && given <= 255 ? static_cast<int>(given) : proto::TensorProto::UNDEFINED;
  const auto dtype = dtype_of(data_type);
  if (!dtype) return call.unsupported("cannot make ", data_type_name(data_type));
  return *dtype;
}

// a - b cos(2 pi n / N) + c cos(4 pi n / N)
Status window(Call& call, double a, double b, double c) {
  HEDDLE_TRY_ASSIGN(const DType dtype, take_dtype(call, "output_datatype"));
  HEDDLE_TRY_ASSIGN(const int64_t periodic, call.take_i64("periodic", 1));
  HEDDLE_TRY_ASSIGN(const ValueId size, call.required(0));
  Parts parts(call);
  const auto number = [&](double value) { return parts.number(DType::kF64, value); };
  const ValueId count = parts.cast(size, DType::kI64);
  const ValueId period =
      parts.pair("Sub", parts.scalar_of(count), parts.number(DType::kI64, periodic != 0 ? 0 : 1));
  const ValueId place = parts.pair("Div", parts.range(count, DType::kF64), parts.cast(period, DType::kF64));
  const auto wave = [&](double turns, double height) {
    const ValueId angle = parts.pair("Mul", place, number(2 * kPi * turns));
    return parts.pair("Mul", parts.node("Cos", {angle}), number(height));
  };
  ValueId y = parts.pair("Sub", number(a), wave(1, b));
  if (c != 0) y = parts.pair("Add", y, wave(2, c));
  return parts.emit(parts.cast(y, dtype));
}

Status hann(Call& call) { return window(call, 0.5, 0.5, 0); }
Status hamming(Call& call) { return window(call, 25.0 / 46, 21.0 / 46, 0); }
Status blackman(Call& call) { return window(call, 0.42, 0.5, 0.08); }

Result<double> known_number(Call& call, size_t input, std::string_view name) {
  HEDDLE_TRY_ASSIGN(const ValueId id, call.required(input));
  const auto& constant = call.value(id).constant;
  if (!constant || constant->elements() != 1)
    return call.unsupported(name, " must be a constant of one element; it is ", call.value(id).type);
  return constant->get(0);
}

double to_mel(double hertz) { return 2595 * std::log10(1 + hertz / 700); }
double from_mel(double mel) { return 700 * (std::pow(10, mel / 2595) - 1); }

Status mel_weights(Call& call) {
  HEDDLE_TRY_ASSIGN(const DType dtype, take_dtype(call, "output_datatype"));
  HEDDLE_TRY_ASSIGN(const double bands, known_number(call, 0, "num_mel_bins"));
  HEDDLE_TRY_ASSIGN(const double length, known_number(call, 1, "dft_length"));
  HEDDLE_TRY_ASSIGN(const double rate, known_number(call, 2, "sample_rate"));
  HEDDLE_TRY_ASSIGN(const double low, known_number(call, 3, "lower_edge_hertz"));
  HEDDLE_TRY_ASSIGN(const double high, known_number(call, 4, "upper_edge_hertz"));
  constexpr double kMost = 1 << 20;
  if (!(bands >= 1 && bands <= kMost && length >= 1 && length <= kMost && rate > 0 && low >= 0 &&
        high >= low)) {
    return call.invalid("num_mel_bins is ", bands, ", dft_length ", length, ", sample_rate ", rate,
                        ", edges ", low, " and ", high, "; counts have to be 1 or more and edges in order");
  }
  const auto count = static_cast<int64_t>(bands);
  const int64_t bins = static_cast<int64_t>(length) / 2 + 1;
  const double step = (to_mel(high) - to_mel(low)) / (bands + 2);
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < count + 2; ++i) {
    const double hertz = from_mel(to_mel(low) + static_cast<double>(i) * step);
    edges.push_back(static_cast<int64_t>(std::floor((length + 1) * hertz / rate)));
  }
  if (edges.back() > bins)
    return call.invalid("upper_edge_hertz is ", high, "; half the sample rate is ", rate / 2);
  constexpr int64_t kMostWeights = int64_t{1} << 24;
  if (bins * count > kMostWeights) {
    return call.unsupported(
        "num_mel_bins is ", count, " and dft_length ", length, ", which makes ", bins * count,
        " weights; they are computed while the model is read, which does at most ", kMostWeights);
  }
  ir::Tensor weights = ir::Tensor::zeros(dtype, {bins, count});
  const auto set = [&](int64_t bin, int64_t band, double value) {
    if (bin < bins) weights.set(bin * count + band, value);
  };
  for (int64_t i = 0; i < count; ++i) {
    const size_t band = static_cast<size_t>(i);
    const int64_t left = edges[band], centre = edges[band + 1], right = edges[band + 2];
    if (centre == left) set(centre, i, 1);
    for (int64_t j = left; centre > left && j <= centre; ++j)
      set(j, i, static_cast<double>(j - left) / static_cast<double>(centre - left));
    for (int64_t j = centre; j < right; ++j)
      set(j, i, static_cast<double>(right - j) / static_cast<double>(right - centre));
  }
  call.bind(0, call.constant(std::move(weights), "weights"));
  return {};
}

struct Transform {
  bool inverse = false;
  bool onesided = false;
};

// Half of a spectrum: its length / 2 + 1 bins tell the rest.
ValueId half_of(Parts& parts, ValueId length) {
  return parts.pair("Add", parts.pair("Div", length, parts.ints({2})), parts.ints({1}));
}

// x [.., n, parts] times a matrix gives [.., m, parts]. `length` is the number of points, [1].
ValueId transformed(Parts& parts, ValueId x, ValueId length, Transform kind) {
  if (!parts.status().ok()) return x;
  const ir::TensorType type = parts.type(x);
  const bool complex_in = type.shape.back().is(2);
  const bool from_half = kind.inverse && kind.onesided;
  const ValueId full = parts.range(length, DType::kI64);
  const ValueId half = parts.range(half_of(parts, length), DType::kI64);
  const ValueId from = from_half ? half : full;
  const ValueId to = kind.onesided && !kind.inverse ? half : full;
  // Turns are taken modulo the length as integers: angles stay small and exact.
  const ValueId turns = parts.pair("Mod", parts.pair("Mul", parts.unsqueeze(from, {1}), to), length);
  const ValueId period = parts.cast(length, DType::kF64);
  const ValueId angle = parts.pair(
      "Div", parts.pair("Mul", parts.cast(turns, DType::kF64), parts.number(DType::kF64, 2 * kPi)), period);
  ValueId cosine = parts.node("Cos", {angle}), sine = parts.node("Sin", {angle});
  if (kind.inverse) {
    ValueId weight = parts.node("Reciprocal", {period});
    if (from_half) {  // all but the first bin, and the middle one of an even length, stand for two
      const ValueId own = parts.pair(
          "Equal", parts.pair("Mod", parts.pair("Mul", half, parts.ints({2})), length), parts.ints({0}));
      const ValueId times =
          parts.node("Where", {own, parts.number(DType::kF64, 1), parts.number(DType::kF64, 2)});
      weight = parts.unsqueeze(parts.pair("Mul", times, weight), {1});
    }
    cosine = parts.pair("Mul", cosine, weight);
    sine = parts.node("Neg", {parts.pair("Mul", sine, weight)});
  }
  const auto beside = [&](ValueId a, ValueId b, int64_t axis) {
    return parts.node("Concat", {parts.unsqueeze(a, {axis}), parts.unsqueeze(b, {axis})}, {{"axis", axis}});
  };
  // e^(-i angle), real part and imaginary part of the result side by side; the second row serves the
  // imaginary part of x.
  const ValueId real =
      from_half ? parts.unsqueeze(cosine, {2}) : beside(cosine, parts.node("Neg", {sine}), 2);
  ValueId matrix = real;
  if (complex_in) {
    const ValueId imaginary = from_half ? parts.unsqueeze(sine, {2}) : beside(sine, cosine, 2);
    matrix = beside(real, imaginary, 1);  // [n, 2, m, parts]
  }
  const int64_t pieces = from_half ? 1 : 2;
  const ValueId width = parts.pair("Mul", parts.node("Shape", {to}), parts.ints({pieces}));
  const ValueId height = parts.pair("Mul", parts.node("Shape", {from}), parts.ints({complex_in ? 2 : 1}));
  const ValueId flat = parts.cast(parts.node("Reshape", {matrix, parts.join({height, width})}), type.dtype);
  const ValueId lead = parts.extents(x, 0, type.rank() - 2);
  const ValueId rows = parts.node("Reshape", {x, parts.join({lead, height})});
  const ValueId product = parts.pair("MatMul", rows, flat);
  return parts.node("Reshape",
                    {product, parts.join({lead, parts.node("Shape", {to}), parts.ints({pieces})})});
}

// The axis cut or padded with zeros to `length`.
ValueId fitted(Parts& parts, ValueId x, size_t axis, ValueId length) {
  const ValueId which = parts.ints({static_cast<int64_t>(axis)}), zero = parts.ints({0});
  const ValueId cut = parts.node("Slice", {x, zero, length, which});
  const ValueId lack = parts.pair("Max", parts.pair("Sub", length, parts.extent(x, axis)), zero);
  return parts.node("Pad", {cut, parts.join({zero, lack}), ir::kNoValue, which});
}

ValueId vector_of(Parts& parts, ValueId scalar) {
  return parts.node("Reshape", {parts.cast(scalar, DType::kI64), parts.ints({1})});
}

Status dft(Call& call) {
  HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(0));
  HEDDLE_TRY_ASSIGN(const int64_t inverse, call.take_i64("inverse", 0));
  HEDDLE_TRY_ASSIGN(const int64_t onesided, call.take_i64("onesided", 0));
  HEDDLE_TRY_ASSIGN(int64_t axis, call.take_i64("axis", call.opset() < 20 ? 1 : -2));
  if (call.has(2)) {
    HEDDLE_TRY_ASSIGN(const double given, known_number(call, 2, "axis"));
    axis = static_cast<int64_t>(given);
  }
  const Result<size_t> at = ir::normalize_axis(axis, type.rank());
  const bool pieces = type.rank() >= 2 && (type.shape.back().is(1) || type.shape.back().is(2));
  if (!at.ok() || !pieces || *at + 1 == type.rank()) {
    return call.invalid("axis ", axis, " of ", type,
                        "; it has to be another than the last, whose extent is 1 or 2");
  }
  const Transform kind{inverse != 0, onesided != 0};
  Parts parts(call);
  ValueId x = call.input(0);
  const ValueId own = parts.extent(x, *at);
  const bool from_half = kind.inverse && kind.onesided;
  ValueId length =
      from_half ? parts.pair("Mul", parts.pair("Sub", own, parts.ints({1})), parts.ints({2})) : own;
  if (call.has(1)) {
    length = vector_of(parts, call.input(1));
    x = fitted(parts, x, *at, from_half ? half_of(parts, length) : length);
  }
  std::vector<int64_t> perm, back(type.rank());
  for (size_t i = 0; i + 1 < type.rank(); ++i) {
    if (i != *at) perm.push_back(static_cast<int64_t>(i));
  }
  perm.push_back(static_cast<int64_t>(*at));
  perm.push_back(static_cast<int64_t>(type.rank()) - 1);
  for (size_t i = 0; i < perm.size(); ++i) back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return parts.emit(parts.transpose(transformed(parts, parts.transpose(x, perm), length, kind), back));
}

Status stft(Call& call) {
  HEDDLE_TRY_ASSIGN(const ir::TensorType type, call.type(0));
  HEDDLE_TRY_ASSIGN(const int64_t onesided, call.take_i64("onesided", 1));
  HEDDLE_TRY(call.required(1));
  const bool pieces = type.rank() == 2 || (type.rank() == 3 && (type.shape[2].is(1) || type.shape[2].is(2)));
  if (!pieces) return call.invalid("the signal is ", type, "; it has to be [batch, length, 1 or 2]");
  if (!call.has(2) && !call.has(3)) return call.invalid("neither window nor frame_length is given");
  Parts parts(call);
  const ValueId signal = type.rank() == 2 ? parts.unsqueeze(call.input(0), {2}) : call.input(0);
  const ValueId step = vector_of(parts, call.input(1));
  const ValueId length = call.has(3) ? vector_of(parts, call.input(3)) : parts.extent(call.input(2), 0);
  const ValueId room = parts.pair("Sub", parts.extent(signal, 1), length);
  const ValueId frames = parts.pair("Add", parts.pair("Div", room, step), parts.ints({1}));
  const ValueId starts = parts.pair("Mul", parts.unsqueeze(parts.range(frames, DType::kI64), {1}), step);
  const ValueId places = parts.pair("Add", starts, parts.range(length, DType::kI64));
  ValueId x =
      parts.node("Gather", {signal, places}, {{"axis", int64_t{1}}});  // [batch, frames, length, 1 or 2]
  if (call.has(2)) x = parts.pair("Mul", x, parts.unsqueeze(call.input(2), {1}));
  return parts.emit(transformed(parts, x, length, {false, onesided != 0}));
}

}  // namespace

std::span<const Operator> signal_operators() {
  static constexpr Operator kTable[] = {
      {"BlackmanWindow", 17, blackman},     {"DFT", 17, dft},
      {"HammingWindow", 17, hamming},       {"HannWindow", 17, hann},
      {"MelWeightMatrix", 17, mel_weights}, {"STFT", 17, stft},
  };
  return kTable;
}

}  // namespace heddle::onnx
