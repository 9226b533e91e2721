#include "tests/metal_double/graph/numerics/array.h"

#include <cstdio>
#include <numeric>

namespace heddle::metal_double {

int64_t elements_of(std::span<const int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::string shown(const Shape& shape) {
  std::string out = "[";
  for (const int64_t extent : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(extent);
  return out + "]";
}

std::string shown(MPSDataType type) {
  if (type == MPSDataTypeBool) return "bool";
  if (type == MPSDataTypeBFloat16) return "bf16";
  const char* const kind = is_float(type) ? "f" : has(type, MPSDataTypeSignedBit) ? "i" : "u";
  return kind + std::to_string(8 * size_of(type));
}

Array Array::zeros(MPSDataType type, const Shape& shape) {
  Array out;
  out.type_ = type;
  out.shape_ = shape;
  out.bytes_.reset(new std::byte[static_cast<size_t>(out.bytes())]());  // aligned for every type
  return out;
}

Array Array::borrow(MPSDataType type, const Shape& shape, const void* bytes) {
  Array out;
  out.type_ = type;
  out.shape_ = shape;
  auto* const theirs = const_cast<std::byte*>(static_cast<const std::byte*>(bytes));
  out.bytes_ = std::shared_ptr<std::byte[]>(theirs, [](std::byte*) {});
  return out;
}

Array Array::reshaped(const Shape& shape) const {
  Array out = *this;
  out.shape_ = shape;
  return out;
}

void no_such_type(MPSDataType type) {
  std::fprintf(stderr, "MPSGraph's double computes nothing in %s here\n", shown(type).c_str());
  std::abort();
}

std::vector<float> floats_of(const Array& x) {
  return with_floats(x.type(), [&](auto tag) {
    const auto* from = x.read<decltype(tag)>();
    return std::vector<float>(from, from + x.elements());
  });
}

Array of_floats(MPSDataType type, const Shape& shape, const std::vector<float>& values) {
  Array out = Array::zeros(type, shape);
  with_floats(type, [&](auto tag) {
    auto* to = out.write<decltype(tag)>();
    for (const float value : values) *to++ = static_cast<decltype(tag)>(value);
  });
  return out;
}

std::vector<int64_t> integers_of(const Array& x) {
  return with_integers(x.type(), [&](auto tag) {
    const auto* from = x.read<decltype(tag)>();
    return std::vector<int64_t>(from, from + x.elements());
  });
}

}  // namespace heddle::metal_double
