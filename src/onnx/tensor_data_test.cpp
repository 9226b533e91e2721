#include "onnx/tensor_data.h"

#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace heddle::onnx {
namespace {

using Tensor = proto::TensorProto;

Result<ir::Tensor> read(const Tensor& tensor) {
  static const Limits limits;
  ExternalData external("");
  return TensorData(limits, external).read(tensor);
}

Tensor make(int type, const std::vector<int64_t>& dims) {
  Tensor tensor;
  tensor.set_data_type(type);
  for (const int64_t dim : dims) tensor.add_dims(dim);
  return tensor;
}

struct TypedForm {
  int type;
  ir::DType dtype;
  std::string raw;                     // of the two values below
  std::function<void(Tensor&)> typed;  // the same two values
  double first, second;
};

template <class T>
std::string raw(T first, T second) {
  std::string out(2 * sizeof(T), '\0');
  std::memcpy(out.data(), &first, sizeof(T));
  std::memcpy(out.data() + sizeof(T), &second, sizeof(T));
  return out;
}

std::function<void(Tensor&)> int32s(int first, int second) {
  return [=](Tensor& t) {
    t.add_int32_data(first);
    t.add_int32_data(second);
  };
}

std::function<void(Tensor&)> uint64s(uint64_t first, uint64_t second) {
  return [=](Tensor& t) {
    t.add_uint64_data(first);
    t.add_uint64_data(second);
  };
}

std::vector<TypedForm> forms() {
  return {
      {Tensor::FLOAT, ir::DType::kF32, raw(1.5f, -2.0f),
       [](Tensor& t) {
         t.add_float_data(1.5f);
         t.add_float_data(-2.0f);
       },
       1.5, -2},
      {Tensor::DOUBLE, ir::DType::kF64, raw(1.1, -2e300),
       [](Tensor& t) {
         t.add_double_data(1.1);
         t.add_double_data(-2e300);
       },
       1.1, -2e300},
      {Tensor::FLOAT16, ir::DType::kF16, raw<uint16_t>(0x3e00, 0xc000), int32s(0x3e00, 0xc000), 1.5, -2},
      {Tensor::BFLOAT16, ir::DType::kBF16, raw<uint16_t>(0x3fc0, 0xc000), int32s(0x3fc0, 0xc000), 1.5, -2},
      {Tensor::INT8, ir::DType::kI8, raw<int8_t>(-128, 127), int32s(-128, 127), -128, 127},
      {Tensor::UINT8, ir::DType::kU8, raw<uint8_t>(0, 255), int32s(0, 255), 0, 255},
      {Tensor::INT16, ir::DType::kI16, raw<int16_t>(-32768, 32767), int32s(-32768, 32767), -32768, 32767},
      {Tensor::INT32, ir::DType::kI32, raw<int32_t>(-7, 1 << 30), int32s(-7, 1 << 30), -7, 1 << 30},
      {Tensor::INT64, ir::DType::kI64, raw<int64_t>(-7, int64_t{1} << 40),
       [](Tensor& t) {
         t.add_int64_data(-7);
         t.add_int64_data(int64_t{1} << 40);
       },
       -7, 1099511627776.0},
      {Tensor::UINT16, ir::DType::kU16, raw<uint16_t>(0, 65535), int32s(0, 65535), 0, 65535},
      {Tensor::UINT32, ir::DType::kU32, raw<uint32_t>(7, 1u << 31), uint64s(7, 1u << 31), 7, 2147483648.0},
      {Tensor::UINT64, ir::DType::kU64, raw<uint64_t>(7, uint64_t{1} << 63), uint64s(7, uint64_t{1} << 63), 7,
       9223372036854775808.0},
      {Tensor::BOOL, ir::DType::kBool, raw<uint8_t>(1, 0), int32s(1, 0), 1, 0},
  };
}

}  // namespace

TEST_CASE("each element type is read from raw bytes and from its typed field") {
  REQUIRE(forms().size() == ir::kDTypeCount);
  for (const TypedForm& form : forms()) {
    for (const bool typed : {false, true}) {
      CAPTURE(ir::name(form.dtype));
      CAPTURE(typed);
      Tensor tensor = make(form.type, {1, 2});
      if (typed) {
        form.typed(tensor);
      } else {
        tensor.set_raw_data(form.raw);
      }
      const auto value = read(tensor);
      REQUIRE(value.ok());
      CHECK(value->dtype() == form.dtype);
      CHECK(value->extents() == ir::Extents{1, 2});
      CHECK(value->get(0) == form.first);
      CHECK(value->get(1) == form.second);
    }
  }
}

TEST_CASE("values that do not fit their type are refused, not cut") {
  const auto refused = [](int type, const std::function<void(Tensor&)>& fill, const std::string& says) {
    Tensor tensor = make(type, {2});
    fill(tensor);
    const auto value = read(tensor);
    REQUIRE_FALSE(value.ok());
    CAPTURE(value.status().message());
    CHECK(value.status().code() == Code::invalid);
    CHECK(value.status().message().find(says) != std::string::npos);
  };
  refused(Tensor::INT8, int32s(0, 128), "int32_data[1] is 128");
  refused(Tensor::UINT8, int32s(-1, 0), "int32_data[0] is -1");
  refused(Tensor::FLOAT16, int32s(0, 65536), "does not fit f16");
  refused(Tensor::BOOL, int32s(0, 2), "neither 0 nor 1");
  refused(Tensor::BOOL, [](Tensor& t) { t.set_raw_data("\1\7"); }, "neither 0 nor 1");
  refused(Tensor::INT64, int32s(0, 1), "int64_data has 0 elements");
  refused(Tensor::FLOAT, [](Tensor& t) { t.set_raw_data("abcdefg"); }, "raw_data has 7 bytes");
}

TEST_CASE("scalars, empty tensors and large ones keep their shape and bytes") {
  Tensor scalar = make(Tensor::FLOAT, {});
  scalar.add_float_data(3);
  REQUIRE(read(scalar).ok());
  CHECK(read(scalar)->extents().rank() == 0);
  const Tensor empty = make(Tensor::FLOAT, {0, 5});
  REQUIRE(read(empty).ok());
  CHECK(read(empty)->elements() == 0);

  std::vector<float> values(100'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  Tensor large = make(Tensor::FLOAT, {100, 1000});
  large.set_raw_data(values.data(), values.size() * sizeof(float));
  const Limits limits;
  ExternalData external("");
  const void* before = large.raw_data().data();
  const auto taken = TensorData(limits, external).take(large);
  REQUIRE(taken.ok());
  CHECK(taken->data() == before);  // moved, not copied
  CHECK(taken->get(99'999) == 99'999);
}

}  // namespace heddle::onnx
