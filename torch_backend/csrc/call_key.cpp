// call_key.cpp: a call's dtypes, shapes, layouts and known arguments, appended to a key.
#include "call_key.h"

#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace heddle::torch_backend {
namespace {

template <class T>
void append(std::string& key, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  key.append(bytes, sizeof value);
}

void append_tensor(CallKey& call, const at::Tensor& tensor) {
  std::string& key = call.whole;
  if (!tensor.defined()) {
    key.push_back('-');
    return;
  }
  const Form form = form_of(tensor);
  key.push_back('T');
  key.push_back(static_cast<char>(tensor.scalar_type()));
  key.push_back(static_cast<char>(form));
  key.push_back(static_cast<char>(tensor.unsafeGetTensorImpl()->is_wrapped_number()));
  key.push_back(static_cast<char>(tensor.dim()));
  call.extents.insert(call.extents.end(), tensor.sizes().begin(), tensor.sizes().end());
  if (form == Form::permuted) {
    for (const int64_t axis : memory_order(tensor)) key.push_back(static_cast<char>(axis));
  }
}

template <class T>
void append_number(std::string& key, T number, Numbers numbers) {
  const bool known = numbers == Numbers::known || is_known(static_cast<double>(number));
  key.push_back(known ? 'k' : '*');
  if (known) append(key, number);
}

void append_number(std::string& key, const c10::IValue& value, Numbers numbers) {
  key.push_back(value.isDouble() ? 'd' : value.isBool() ? 'b' : value.isInt() ? 'i' : 'c');
  if (value.isDouble()) append_number(key, value.toDouble(), numbers);
  if (value.isInt()) append_number(key, value.toInt(), numbers);
  if (value.isBool()) append_number(key, static_cast<int64_t>(value.toBool()), numbers);
}

void append_value(CallKey& call, const c10::IValue& value) {
  std::string& key = call.whole;
  if (value.isTensor()) {
    append_tensor(call, value.toTensor());
  } else if (value.isTensorList()) {
    append(key, static_cast<uint32_t>(value.toListRef().size()));
    for (const c10::IValue& each : value.toListRef()) append_tensor(call, each.toTensor());
  } else if (value.isList()) {
    key.push_back('L');
    append(key, static_cast<uint32_t>(value.toListRef().size()));
    for (const c10::IValue& each : value.toListRef()) append_value(call, each);
  } else if (value.isInt()) {
    key.push_back('i');
    append(key, value.toInt());
  } else if (value.isDouble()) {
    key.push_back('d');
    append(key, value.toDouble());
  } else if (value.isBool()) {
    key.push_back(value.toBool() ? 'y' : 'n');
  } else if (value.isString()) {
    key.push_back('s');
    append(key, static_cast<uint32_t>(value.toStringRef().size()));
    key.append(value.toStringRef());
  } else {
    key.push_back('0');  // None, or what means nothing to a graph
  }
}

}  // namespace

bool is_known(double number) { return number == 1.0 || (number == 0.0 && !std::signbit(number)); }

Form form_of(const at::Tensor& tensor) {
  if (tensor.dim() == 0 && tensor.device().is_cpu()) return Form::number;
  if (tensor.is_contiguous() || !tensor.is_non_overlapping_and_dense()) return Form::as_it_is;
  return Form::permuted;
}

std::vector<int64_t> memory_order(const at::Tensor& tensor) {
  std::vector<int64_t> order(static_cast<size_t>(tensor.dim()));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    if (tensor.stride(a) != tensor.stride(b)) return tensor.stride(a) > tensor.stride(b);
    return tensor.size(a) > tensor.size(b);
  });
  return order;
}

void CallKey::clear() {
  whole.clear();
  extents.clear();
  kind_bytes = 0;
}

void CallKey::end_kind() {
  kind_bytes = whole.size();
  for (const int64_t extent : extents) append(whole, extent);
}

void append_arguments(CallKey& key, uint64_t scalars, c10::ArrayRef<c10::IValue> arguments, Numbers numbers) {
  key.whole.push_back(static_cast<char>(c10::get_default_dtype_as_scalartype()));
  for (size_t i = 0; i < arguments.size(); ++i) {
    if ((scalars >> i & 1) != 0 && !arguments[i].isNone()) {
      append_number(key.whole, arguments[i], numbers);
    } else {
      append_value(key, arguments[i]);
    }
  }
}

}  // namespace heddle::torch_backend
