// arguments.cpp: IValue -> Argument, by the schema's type.
#include "arguments.h"

#include <ATen/core/Tensor.h>

#include "storage.h"

namespace heddle::torch_backend {
namespace {

std::vector<TensorArgument> tensors(const c10::IValue& value, const TensorMaker& make) {
  std::vector<TensorArgument> made;
  if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& each : value.toOptionalTensorList())
      made.push_back(each && each->defined() ? make(*each) : TensorArgument{GraphBuilder::absent()});
  } else {
    for (const at::Tensor& each : value.toTensorList()) made.push_back(make(each));
  }
  return made;
}

Number number(const c10::IValue& value) {
  if (value.isBool()) return {DType::boolean, value.toBool() ? 1.0 : 0.0};
  if (value.isInt()) {
    constexpr int64_t kExact = int64_t{1} << 53;  // up to which a double holds every int
    const int64_t n = value.toInt();
    if (n < -kExact || n > kExact) return {DType::i64, std::nullopt};
    return {DType::i64, static_cast<double>(n)};
  }
  if (value.isDouble()) return {DType::f64, value.toDouble()};
  TORCH_CHECK_NOT_IMPLEMENTED(false, "device heddle computes with whole and real numbers; got ",
                              value.tagKind());
}

template <class T, class List>
std::vector<T> copied(const List& list) {
  std::vector<T> values;
  for (const auto& each : list) values.push_back(T(each));
  return values;
}

Argument list(const c10::IValue& value, const c10::Type& element, const TensorMaker& make) {
  switch (plain(element).kind()) {
    case c10::TypeKind::TensorType:
      return tensors(value, make);
    case c10::TypeKind::FloatType:
      return copied<double>(value.toDoubleVector());
    case c10::TypeKind::BoolType:
      return copied<bool>(value.toBoolList().vec());
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return copied<Int>(value.toIntVector());
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "device heddle reads no argument of type ", element.str(), "[]");
  }
}

}  // namespace

const c10::Type& plain(const c10::Type& type) {
  const auto* optional = type.castRaw<c10::OptionalType>();
  return optional == nullptr ? type : *optional->getElementType();
}

uint64_t scalar_arguments(const c10::FunctionSchema& schema) {
  const std::vector<c10::Argument>& arguments = schema.arguments();
  TORCH_INTERNAL_ASSERT(arguments.size() <= 64, schema.name(), " has ", arguments.size(), " arguments");
  uint64_t bits = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (plain(*arguments[i].real_type()).kind() == c10::TypeKind::NumberType) bits |= uint64_t{1} << i;
  }
  return bits;
}

Argument to_argument(const c10::IValue& value, const c10::Type& declared, const TensorMaker& make) {
  if (value.isNone()) return std::monostate();
  const c10::Type& type = plain(declared);
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      if (!value.toTensor().defined()) return std::monostate();
      return make(value.toTensor());
    case c10::TypeKind::ListType:
      return list(value, *type.castRaw<c10::ListType>()->getElementType(), make);
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return Int(value.toInt());
    case c10::TypeKind::FloatType:
      return value.toDouble();
    case c10::TypeKind::BoolType:
      return value.toBool();
    case c10::TypeKind::StringType:
      return value.toStringRef();
    case c10::TypeKind::NumberType:
      return number(value);
    case c10::TypeKind::ScalarTypeType:
      return to_heddle(value.toScalarType());
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
    case c10::TypeKind::GeneratorType:
      return std::monostate();
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "device heddle reads no argument of type ", declared.str());
  }
}

}  // namespace heddle::torch_backend
