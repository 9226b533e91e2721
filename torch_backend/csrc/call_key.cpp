// call_key.cpp: a call's dtypes, shapes, layouts and known arguments, appended to a key.
#include "call_key.h"

#include <c10/core/DefaultDtype.h>

#include <cmath>
#include <cstring>

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
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const bool by_rows = impl.is_contiguous();
  const Form form = by_rows && impl.dim() > 0 ? Form::as_it_is : form_of(tensor);
  // An extent of 1 lets a tensor lie both ways.
  call.any_strided |= !by_rows || impl.is_strides_like_channels_last();
  const char said[] = {'T', static_cast<char>(tensor.scalar_type()), static_cast<char>(form),
                       static_cast<char>(tensor.unsafeGetTensorImpl()->is_wrapped_number()),
                       static_cast<char>(tensor.dim())};
  key.append(said, sizeof said);
  for (const int64_t extent : tensor.sizes()) call.extents.push_back(extent);
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

// By insertion, which keeps the order of equals and needs no memory, as std::stable_sort() does.
Axes memory_order(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  const auto is_outer = [&](int64_t a, int64_t b) {
    const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    return strides[i] != strides[j] ? strides[i] > strides[j] : sizes[i] > sizes[j];
  };
  Axes order;
  for (int64_t axis = 0; axis < static_cast<int64_t>(sizes.size()); ++axis) {
    size_t place = order.size();
    order.push_back(axis);
    for (; place > 0 && is_outer(axis, order[place - 1]); --place) order[place] = order[place - 1];
    order[place] = axis;
  }
  return order;
}

void CallKey::clear() {
  whole.clear();
  extents.clear();
  kind_bytes = 0;
  any_strided = false;
}

void CallKey::end_kind() {
  kind_bytes = whole.size();
  whole.append(reinterpret_cast<const char*>(extents.data()), extents.size() * sizeof(int64_t));
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
