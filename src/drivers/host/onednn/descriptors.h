// descriptors.h: oneDNN's descriptors for our operands, and the post-operations that fused attributes ask
// for.
//
//   Errors     oneDNN's constructors throw: use the descriptions inside caught(). append_activation() returns
//              its Status.
#pragma once

#include <dnnl.hpp>
#include <optional>

#include "base/status.h"
#include "ir/ops/activation.h"
#include "ir/tensor_type.h"

namespace heddle::host {

using Dims = dnnl::memory::dims;

inline dnnl::memory::data_type float_type(bool bf16) {
  return bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}
// Of an operand that a caller brings in sixteen bits; nothing: f32.
inline dnnl::memory::data_type float_type(std::optional<ir::DType> half) {
  if (!half) return dnnl::memory::data_type::f32;
  return *half == ir::DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f16;
}
inline dnnl::memory::desc f32_desc(const Dims& dims, const Dims& strides) {
  return {dims, dnnl::memory::data_type::f32, strides};
}
inline Dims dense_strides(const Dims& dims) {  // contiguous, row-major
  Dims strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}
inline dnnl::memory::desc f32_desc(const Dims& dims) { return f32_desc(dims, dense_strides(dims)); }
inline dnnl::memory::desc f32_any(const Dims& dims) {
  return {dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any};
}
inline Dims to_dims(const ir::Extents& extents) { return Dims(extents.begin(), extents.end()); }
inline int64_t elements_of(const Dims& dims) {
  int64_t n = 1;
  for (const int64_t extent : dims) n *= extent;
  return n;
}

Status append_activation(const ir::Activation& activation, dnnl::post_ops& ops);

}  // namespace heddle::host
